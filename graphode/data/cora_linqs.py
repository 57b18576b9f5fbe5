"""Cora in its original order, inside the package: the split that the paper's authors used.

Sen et al. (2008), "Collective Classification in Network Data". Papers and citations are those of
the Planetoid set `cora`; the order of the papers is another, and so is the split. The authors of
the paper loaded Cora by DGL's `CoraDataset` of 2019–2020, which

- numbers the papers in the order of `cora.content`,
- joins two papers where either cites the other, with weight 1,
- divides each row of features by its sum,
- trains on nodes 0–139, validates on 200–499 and tests on 500–1499.

So does this loader. Unlike the public split's, these 140 training nodes are not balanced: 8 to 41
are of one class. Classes are numbered alphabetically here and by the order of a Python set there,
which changes no accuracy.
"""

import io

import numpy as np
import torch
from scipy.sparse import csr_matrix

from graphode.data.catalogue import find_source
from graphode.data.node_data import NodeData, row_normalized, undirected_graph
from graphode.data.splits import Split
from graphode.data.store import read_file

PUBLISHED = (2708, 5278, 1433, 7)


def cora_linqs(normalize_features: bool = True) -> NodeData:
    """Cora with the authors' split; needs no file and no net.

    Args:
        normalize_features: Whether each row of features is divided by its sum.
    """
    source = find_source("cora_linqs")
    (file,) = source.files
    with np.load(io.BytesIO(read_file(source, file.name)), allow_pickle=False) as arrays:
        packed = dict(arrays)
    num_nodes = len(packed["papers"])
    source_node, target_node = packed["edges"].astype(np.int64).T
    features = _features(packed["words"], packed["word_counts"], int(packed["num_words"]))
    data = NodeData(
        name="cora_linqs",
        graph=undirected_graph(source_node, target_node, num_nodes),
        features=row_normalized(features) if normalize_features else features,
        labels=torch.from_numpy(packed["labels"].astype(np.int64)),
        num_classes=len(packed["class_names"]),
        split=Split("authors", torch.arange(140), torch.arange(200, 500), torch.arange(500, 1500)),
        class_names=tuple(packed["class_names"].tolist()),
        checksums={file.name: file.sha256},
    )
    data.check_counts(*PUBLISHED)
    return data


def _features(differences: np.ndarray, counts: np.ndarray, num_words: int) -> csr_matrix:
    """Undo the packing: in each row the columns are stored as differences."""
    ends = np.cumsum(counts, dtype=np.int64)
    running = np.cumsum(differences, dtype=np.int64)
    before_row = np.concatenate([[0], running])[ends - counts]
    columns = running - np.repeat(before_row, counts)
    return csr_matrix(
        (np.ones(len(columns), np.float32), columns, np.concatenate([[0], ends])),
        shape=(len(counts), num_words),
    )
