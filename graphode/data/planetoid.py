"""Cora, Citeseer and Pubmed in their usual form, with the public split.

Yang, Cohen, Salakhutdinov (2016), "Revisiting Semi-Supervised Learning with Graph Embeddings".
Eight files `ind.NAME.*`: `x, y` are the training nodes, `allx, ally` all but the test nodes (the
training nodes first), `tx, ty` the test nodes in the order of `test.index`, `graph` the
neighbours of each node. The public split: the nodes of `x` for training (20 of each class), the
next 500 for validation, those of `test.index` for test.

Citeseer's `test.index` leaves out 15 numbers. They are often called isolated, but each has an edge
or two; what they lack is features and a label. They stay, so that numbers keep their meaning and
the edges their count, with empty rows and the label −1 (PyG gives them class 0).
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix, vstack

from graphode.data.catalogue import find_source
from graphode.data.node_data import NodeData, row_normalized, undirected_graph
from graphode.data.python2_pickles import read_pickle
from graphode.data.splits import Split
from graphode.data.store import MissingFileError, read_file
from graphode.graphs import Graph

# Nodes, undirected edges, features, classes.
PUBLISHED = {
    "cora": (2708, 5278, 1433, 7),
    "citeseer": (3327, 4552, 3703, 6),
    "pubmed": (19717, 44324, 500, 3),
}
NUM_VALIDATION = 500


def planetoid(
    name: str,
    root: Path | str | None = None,
    normalize_features: bool = True,
    verify: bool = True,
    allow_download: bool = True,
) -> NodeData:
    """A citation graph with its public split.

    Args:
        name: "cora", "citeseer" or "pubmed"; with `verify=False` any NAME of `ind.NAME.*`.
        root: A folder with the files, or with a folder NAME of them; without it they are looked
            for as `store.py` says, and downloaded.
        normalize_features: Whether each row of features is divided by its sum.
        verify: Whether checksums and published counts are compared. Files of your own need
            `verify=False` and a `root`; their pickles are read by the same reader, which executes
            nothing.
        allow_download: Whether files that are nowhere are fetched from their public source.
    """
    if verify:
        source = find_source(name, PUBLISHED)
        read = functools.partial(read_file, source, root=root, allow_download=allow_download)
        checksums = {file.name: file.sha256 for file in source.files}
    else:
        read, checksums = functools.partial(_read_own, name, root), {}
    data = _assemble(name, lambda part: read(f"ind.{name}.{part}"), normalize_features, checksums)
    if verify:
        data.check_counts(*PUBLISHED[name])
    return data


def _read_own(name: str, root: Path | str | None, file: str) -> bytes:
    if root is None:
        raise ValueError("`root` must name the folder of the files when `verify` is False.")
    paths = (Path(root) / name / file, Path(root) / file)
    for path in paths:
        if path.is_file():
            return path.read_bytes()
    raise MissingFileError(f"{file} is not here: looked for {paths[0]} and {paths[1]}.")


def _assemble(
    name: str, read: Callable[[str], bytes], normalize_features: bool, checksums: dict[str, str]
) -> NodeData:
    def pickled(part: str, kind: type) -> Any:
        value = read_pickle(read(part), f"ind.{name}.{part}")
        if not isinstance(value, kind):
            raise ValueError(
                f"ind.{name}.{part} must hold a {kind.__name__}, but holds a "
                f"{type(value).__name__}."
            )
        return value

    num_train = len(pickled("y", np.ndarray))
    if pickled("x", csr_matrix).shape[0] != num_train:
        raise ValueError(f"ind.{name}.x and ind.{name}.y must have as many rows as each other.")
    features, test_features = pickled("allx", csr_matrix), pickled("tx", csr_matrix)
    classes, test_classes = pickled("ally", np.ndarray), pickled("ty", np.ndarray)
    test = np.array([int(line) for line in read("test.index").split()], dtype=np.int64)
    num_known, num_nodes = features.shape[0], int(test.max(initial=-1)) + 1
    if len(test) != test_features.shape[0] or len(np.unique(test)) != len(test):
        raise ValueError(
            f"ind.{name}.test.index must hold a different node for each of the "
            f"{test_features.shape[0]} rows of ind.{name}.tx, but holds {len(test)} lines, "
            f"{len(np.unique(test))} of them different."
        )
    if test.min(initial=num_known) < num_known:
        raise ValueError(
            f"ind.{name}.test.index must hold nodes from {num_known} on, after those of "
            f"ind.{name}.allx, but holds {test.min()}."
        )
    # Row k of `tx` belongs to node test[k]; numbers that are left out keep empty rows.
    place = csr_matrix(
        (np.ones(len(test), np.float32), (test - num_known, np.arange(len(test)))),
        shape=(num_nodes - num_known, len(test)),
    )
    features = csr_matrix(vstack([features, place @ test_features]), dtype=np.float32)
    labels = np.full(num_nodes, -1, dtype=np.int64)
    labels[:num_known] = _labels(classes)
    labels[test] = _labels(test_classes)
    return NodeData(
        name=name,
        graph=_graph(name, pickled("graph", dict), num_nodes),
        features=row_normalized(features) if normalize_features else features,
        labels=torch.from_numpy(labels),
        num_classes=classes.shape[1],
        split=Split(
            "public",
            torch.arange(num_train),
            torch.arange(num_train, min(num_train + NUM_VALIDATION, num_known)),
            torch.from_numpy(np.sort(test)),
        ),
        checksums=checksums,
    )


def _labels(one_hot: np.ndarray) -> np.ndarray:
    return np.where(one_hot.any(1), one_hot.argmax(1), -1)


def _graph(name: str, neighbors: dict[int, list[int]], num_nodes: int) -> Graph:
    counts = [len(others) for others in neighbors.values()]
    source = np.repeat(np.fromiter(neighbors, np.int64, len(neighbors)), counts)
    target = np.concatenate([np.asarray(o, np.int64) for o in neighbors.values()] or [source])
    ends = np.concatenate([source, target])
    if ends.size and not 0 <= ends.min() <= ends.max() < num_nodes:
        raise ValueError(
            f"ind.{name}.graph must hold nodes from 0 to {num_nodes - 1}, as the other files have, "
            f"but it holds {ends.min()} to {ends.max()}."
        )
    return undirected_graph(source, target, num_nodes)
