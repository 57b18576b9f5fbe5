"""A graph whose nodes have features and labels, and a split of them: one data set, one object."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Int
from scipy.sparse import csr_matrix, diags_array
from torch import Tensor

from graphode.data.splits import Split
from graphode.graphs import Graph


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeData:
    """A node classification problem.

    Args:
        name: Of the data set.
        graph: Undirected: both directions of every edge, each once, no self-loops; not normalised.
        features: Sparse `[nodes, features]`, float32; `SparseFeatures(data.features)` is what the
            models take.
        labels: A class from 0 to `num_classes` − 1 for every node; −1 where it is not known.
        num_classes: Those of the data set, present or not among the labels.
        split: Which nodes are for training, validation and test.
        class_names: In the order of the labels; empty where the data set does not say.
        checksums: sha256 of every file that was read, by name; empty if they were not compared.
    """

    name: str
    graph: Graph
    features: csr_matrix
    labels: Int[Tensor, " nodes"]
    num_classes: int
    split: Split
    class_names: tuple[str, ...] = ()
    checksums: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        nodes = self.graph.num_nodes
        rows, _ = self.features.get_shape()
        if rows != nodes or len(self.labels) != nodes:
            raise ValueError(
                f"{self.name} must have a row of features and a label for each of its {nodes} "
                f"nodes, but has {rows} rows and {len(self.labels)} labels."
            )
        low, high = (int(bound) for bound in torch.aminmax(self.labels)) if nodes else (0, -1)
        if low < -1 or high >= self.num_classes:
            raise ValueError(
                f"{self.name} must have labels from 0 to {self.num_classes - 1}, or −1, but they "
                f"go from {low} to {high}."
            )
        self.split.check(self.labels)

    @property
    def train(self) -> Int[Tensor, " train"]:
        """The nodes to learn from."""
        return self.split.train

    @property
    def val(self) -> Int[Tensor, " val"]:
        """The nodes to choose by."""
        return self.split.val

    @property
    def test(self) -> Int[Tensor, " test"]:
        """The nodes to report on."""
        return self.split.test

    @property
    def num_nodes(self) -> int:
        """Isolated ones included."""
        return self.graph.num_nodes

    @property
    def num_edges(self) -> int:
        """Undirected edges, as published counts are; `graph.num_edges` is twice that."""
        return self.graph.num_edges // 2

    @property
    def num_features(self) -> int:
        """Columns of `features`."""
        return self.features.get_shape()[1]

    def with_split(self, split: Split) -> NodeData:
        """The same data, split in another way."""
        return dataclasses.replace(self, split=split)

    def check_counts(self, nodes: int, edges: int, features: int, classes: int) -> None:
        """Compare with the published counts."""
        published = (nodes, edges, features, classes)
        found = (self.num_nodes, self.num_edges, self.num_features, self.num_classes)
        if found != published:
            raise ValueError(
                f"{self.name} must have {_counted(published)}, but has {_counted(found)}. The "
                "files are of another data set."
            )


def undirected_graph(source: np.ndarray, target: np.ndarray, num_nodes: int) -> Graph:
    """Each pair of nodes that has an edge, in both directions, once; self-loops are dropped."""
    apart = source != target
    source, target = source[apart].astype(np.int64), target[apart].astype(np.int64)
    key = np.unique(np.concatenate([source + target * num_nodes, target + source * num_nodes]))
    return Graph(torch.from_numpy(np.stack([key % num_nodes, key // num_nodes])), num_nodes)


def row_normalized(features: csr_matrix) -> csr_matrix:
    """Rows divided by their sums, in float64, given back as float32; empty rows stay empty."""
    sums = np.asarray(features.sum(1, dtype=np.float64)).ravel()
    scale = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums != 0)
    return csr_matrix(diags_array(scale) @ features, dtype=np.float32)


def _counted(counts: tuple[int, int, int, int]) -> str:
    return "{} nodes, {} edges, {} features and {} classes".format(*counts)
