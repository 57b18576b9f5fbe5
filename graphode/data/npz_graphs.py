"""Graphs kept as plain arrays in an npz: Texas, Amazon Photo, Coauthor Physics.

Texas (Pei et al., 2020; in the form of Platonov et al., 2023): web pages of a university, mostly
linked to pages of other classes; ten splits. Amazon Photo and Coauthor Physics (Shchur et al.,
2018): no split of their own; as in that paper 20 nodes of each class are drawn for training, 30 for
validation, and the rest is for test.
"""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_matrix

from graphode.data.catalogue import DataSource, find_source
from graphode.data.node_data import NodeData, row_normalized, undirected_graph
from graphode.data.splits import Split, random_split
from graphode.data.store import read_file

# Nodes, undirected edges, features, classes.
PUBLISHED = {
    "texas": (183, 279, 1703, 5),
    "amazon_photo": (7650, 119081, 745, 8),
    "coauthor_physics": (34493, 247962, 8415, 5),
}
NUM_TEXAS_SPLITS = 10


def texas(
    root: Path | str | None = None,
    split: int = 0,
    normalize_features: bool = True,
    allow_download: bool = True,
) -> NodeData:
    """Texas with one of its ten splits, 0 to 9."""
    if not 0 <= split < NUM_TEXAS_SPLITS:
        raise ValueError(f"`split` must be from 0 to {NUM_TEXAS_SPLITS - 1}, but it is {split}.")
    source = find_source("texas")
    arrays = _arrays(source, root, allow_download)
    parts = (
        torch.from_numpy(arrays[f"{part}_masks"][split].nonzero()[0])
        for part in ("train", "val", "test")
    )
    return _node_data(
        source,
        arrays["edges"],
        csr_matrix(arrays["node_features"], dtype=np.float32),
        arrays["node_labels"],
        normalize_features,
        lambda labels: Split(f"{split} of {NUM_TEXAS_SPLITS}", *parts),
    )


def shchur(
    name: str,
    root: Path | str | None = None,
    seed: int = 0,
    normalize_features: bool = True,
    allow_download: bool = True,
) -> NodeData:
    """Amazon Photo or Coauthor Physics, with the random split of that seed.

    Args:
        name: "amazon_photo" or "coauthor_physics".
        seed: Of the split: 20 nodes of each class, 30 of each class, the rest.
        normalize_features: Whether each row of features is divided by its sum.
    """
    source = find_source(name, PUBLISHED.keys() - {"texas"})
    arrays = _arrays(source, root, allow_download)
    features = csr_matrix(
        (arrays["feat_data"], arrays["feat_indices"], arrays["feat_indptr"]),
        shape=tuple(arrays["feat_shape"]),
    )
    return _node_data(
        source,
        arrays["edges"],
        features,
        arrays["labels"],
        normalize_features,
        lambda labels: random_split(labels, 20, val_per_class=30, test=None, seed=seed),
    )


def _arrays(
    source: DataSource, root: Path | str | None, allow_download: bool
) -> dict[str, np.ndarray]:
    (file,) = source.files
    content = read_file(source, file.name, root, allow_download)
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


def _node_data(
    source: DataSource,
    edges: np.ndarray,
    features: csr_matrix,
    labels: np.ndarray,
    normalize_features: bool,
    split: Callable[[torch.Tensor], Split],
) -> NodeData:
    classes = torch.from_numpy(labels.astype(np.int64))
    data = NodeData(
        name=source.name,
        graph=undirected_graph(edges[:, 0], edges[:, 1], len(labels)),
        features=row_normalized(features) if normalize_features else features,
        labels=classes,
        num_classes=int(labels.max()) + 1,
        split=split(classes),
        checksums={file.name: file.sha256 for file in source.files},
    )
    data.check_counts(*PUBLISHED[source.name])
    return data
