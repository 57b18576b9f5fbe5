"""A graph held as a matrix: for few nodes, and for edges that change with every evaluation."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils import _pytree

from graphode.graphs.full import dense_product
from graphode.graphs.graph import Graph
from graphode.graphs.normalization import LAPLACIANS, check_kind, inverse_root, quotient
from graphode.graphs.pattern import Pattern
from graphode.graphs.validation import (
    ArrayLike,
    as_tensor,
    check_dtype,
    checked_state,
    is_shared,
    own_weight,
)


class DenseGraph(Graph):
    """A graph, or a batch of graphs of one size, as matrices: `propagate` is a matrix product.

        propagate(h) = A h,    A[target, source] = weight, 0 where there is no edge

    Everything that acts by `propagate` and `normalize` never asks which entries are zero: no shape
    depends on a value, so that such fields run under `vmap`, compile and are captured. With some
    ten nodes a dense product is also the fastest. What asks for edges (attention, PyG) gets those
    of the non-zero entries, listed when first asked for.

    Args:
        matrix: Square and finite; leading dimensions are a batch, which acts on states
            `[..., *batch, nodes, channels]` as `Graph.batch` does. Receives gradients.

    Attributes:
        matrix: A, `[*batch, nodes, nodes]`.
    """

    matrix: Tensor
    _nonnegative: bool

    def __init__(self, matrix: ArrayLike) -> None:
        matrix = as_tensor(matrix)
        if matrix.dim() < 2 or matrix.shape[-1] != matrix.shape[-2]:
            raise ValueError(
                f"`matrix` must be square, [*batch, nodes, nodes], but its shape is "
                f"{list(matrix.shape)}. For a list of edges use `Graph`."
            )
        if matrix.is_complex():
            raise TypeError(
                f"`matrix` must be real, but its dtype is {matrix.dtype}. Use two graphs, for the "
                "real and the imaginary part."
            )
        if not matrix.is_floating_point():
            matrix = matrix.to(torch.get_default_dtype())
        if not bool(matrix.isfinite().all()):
            raise ValueError(
                "`matrix` must be finite, but some entries are not. Set them to 0 for no edge."
            )
        matrix = own_weight(matrix)
        self._hold(matrix, None, None, bool((matrix >= 0).all()))

    @classmethod
    def from_dense(cls, matrix: ArrayLike) -> DenseGraph:
        """The same as `DenseGraph(matrix)`."""
        return cls(matrix)

    @classmethod
    def from_graph(cls, graph: Graph) -> DenseGraph:
        """The matrix of any graph; a batch of graphs of one size becomes a batch of matrices."""
        source = None if graph.source is None else cls.from_graph(graph.source)
        shape = graph._pattern.batch_shape
        if shape is None and graph.num_graphs > 1:
            raise ValueError(
                f"Matrices are stacked for graphs of one size, but those of this batch have "
                f"{min(graph.sizes)} to {max(graph.sizes)} nodes. Use it as it is, or `unbatch()`."
            )
        count, nodes = len(graph.sizes), graph.sizes[0]
        sender, target = graph.edge_index
        zeros = graph.edge_weight.new_zeros(count, nodes, nodes)
        place = (graph.node_graph[target], target % max(nodes, 1), sender % max(nodes, 1))
        matrix = zeros.index_put(place, graph.edge_weight).reshape(*(shape or ()), nodes, nodes)
        nonnegative = bool((graph.edge_weight >= 0).all())
        return cls._of(matrix, source, graph.kind, nonnegative)

    def propagate(
        self, h: Float[Tensor, "*batch nodes channels"]
    ) -> Float[Tensor, "*batch nodes channels"]:
        """A h, for all leading dimensions at once."""
        *batch, nodes, _ = self.matrix.shape
        is_dense = isinstance(h, Tensor) and h.layout == torch.strided
        stacked = is_dense and h.shape[-2 - len(batch) : -1] == (*batch, nodes)
        if not stacked or not h.is_floating_point() or h.device != self.matrix.device:
            flat = checked_state(self.flatten(h), self)
            return self.propagate(flat.unflatten(-2, (*batch, nodes))).flatten(-2 - len(batch), -2)
        return dense_product(self.matrix.to(h.dtype), h)

    def normalize(self, kind: str, self_loops: bool | None = None) -> DenseGraph:
        """As `Graph.normalize`; an entry of 0 on the diagonal is a node without a loop."""
        check_kind(self, kind)
        if kind != "laplacian" and not self._nonnegative:
            raise ValueError(
                f'The normalisation "{kind}" needs weights of 0 or more, but some are negative. '
                f'Use a kernel of them, or the kind "laplacian", which divides by nothing.'
            )
        is_laplacian = kind in LAPLACIANS
        matrix, one = self.matrix, torch.eye(self.matrix.shape[-1], device=self.matrix.device)
        if self_loops if self_loops is not None else not is_laplacian:
            matrix = torch.where((one > 0) & (matrix == 0), 1.0, matrix)
        degrees = matrix.sum(-1)
        if is_laplacian:
            matrix = one.to(matrix.dtype) * degrees[..., None] - matrix
        if kind.startswith("sym"):
            scale = inverse_root(degrees)
            matrix = matrix * (scale[..., :, None] * scale[..., None, :])
        elif kind.startswith("rw"):
            matrix = quotient(matrix, degrees[..., None])
        return DenseGraph._of(matrix, self, kind, self._nonnegative and not is_laplacian)

    def reverse(self) -> DenseGraph:
        """The graph with every edge turned round: its matrix transposed."""
        if self.kind is not None:
            super().reverse()  # which refuses
        return DenseGraph._of(self.matrix.mT, None, None, self._nonnegative)

    def flatten(
        self, h: Float[Tensor, "*batch nodes channels"]
    ) -> Float[Tensor, "*fewer all_nodes channels"]:
        """A state with all the nodes of a batch in one dimension, as `edge_index` numbers them."""
        *batch, nodes, _ = self.matrix.shape
        if batch and isinstance(h, Tensor) and h.shape[-2 - len(batch) : -1] == (*batch, nodes):
            return h.flatten(-2 - len(batch), -2)
        return h

    def to(self, *args: Any, **kwargs: Any) -> DenseGraph:
        """The same graph on another device, or with weights of another dtype, as `Tensor.to`."""
        matrix = self.matrix.to(*args, **kwargs)
        check_dtype(matrix.dtype)
        source = None if self.source is None else self.source.to(*args, **kwargs)
        return DenseGraph._of(matrix, source, self.kind, self._nonnegative)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of nodes of each graph of a batch."""
        return (self.matrix.shape[-1],) * math.prod(self.matrix.shape[:-2])

    @property
    def node_graph(self) -> Int[Tensor, " nodes"]:
        """The graph that each node of a batch belongs to."""
        graphs = torch.arange(self.num_graphs, device=self.device)
        return graphs.repeat_interleave(self.matrix.shape[-1])

    @property
    def device(self) -> torch.device:
        """Where the matrix is."""
        return self.matrix.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.matrix.dtype

    @property
    def is_symmetric(self) -> bool:
        """Whether every edge has its reverse, of the same weight."""
        return torch.equal(self.matrix, self.matrix.mT)

    @property
    def degrees(self) -> Float[Tensor, " nodes"]:
        """The weight that arrives at each node, of all graphs of a batch."""
        return self.matrix.sum(-1).flatten()

    @property
    def diagonal(self) -> Float[Tensor, " nodes"]:
        """The weight of the self-loop of each node; 0 where there is none."""
        return self.matrix.diagonal(dim1=-2, dim2=-1).flatten()

    def __repr__(self) -> str:
        kind = "" if self.kind is None else f", kind={self.kind!r}"
        return (
            f"DenseGraph(matrix={list(self.matrix.shape)}{kind}, "
            f"dtype={str(self.dtype).removeprefix('torch.')}, device={str(self.device)!r})"
        )

    @functools.cached_property
    def _pattern(self) -> Pattern:  # pyright: ignore[reportIncompatibleVariableOverride]
        which, target, sender = self._entries
        nodes, batch = self.matrix.shape[-1], tuple(self.matrix.shape[:-2])
        edge_index = torch.stack([sender, target]) + which * nodes
        return Pattern(edge_index, self.num_nodes, self.sizes if batch else None, batch or None)

    @functools.cached_property
    def edge_weight(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The non-zero entries, in the order of `edge_index`."""
        return _stacked(self.matrix)[self._entries]

    @functools.cached_property
    def _entries(self) -> tuple[Tensor, ...]:
        """Graph, row and column of every entry that is not zero, and of a Laplacian's diagonal."""
        present = _stacked(self.matrix.detach()) != 0
        if self.kind in LAPLACIANS:
            # Whoever shifts a Laplacian expects its diagonal, of isolated nodes too.
            present = present | torch.eye(present.shape[-1], dtype=torch.bool, device=self.device)
        return present.nonzero(as_tuple=True)

    @staticmethod
    def _of(
        matrix: Any, source: Any = None, kind: str | None = None, nonnegative: bool = False
    ) -> DenseGraph:
        """A graph of a matrix that needs no check; it may be any leaf of a tree."""
        graph = object.__new__(DenseGraph)
        graph._hold(matrix, source, kind, nonnegative)
        return graph

    def _hold(self, matrix: Any, source: Any, kind: str | None, nonnegative: bool) -> None:
        shape = getattr(matrix, "shape", (0, 0))
        self.__dict__.update(
            matrix=matrix,
            num_nodes=math.prod(shape[:-1]),
            source=source,
            kind=kind,
            _nonnegative=nonnegative,
            _is_shared=is_shared(matrix),
            _is_symmetric=None,
            _constants={},
        )


def _stacked(matrix: Tensor) -> Tensor:
    """The matrices of a batch along one dimension, one matrix as a batch of one."""
    *batch, nodes, _ = matrix.shape
    return matrix.reshape(math.prod(batch), nodes, nodes)


def _flatten(graph: DenseGraph) -> tuple[list[Any], tuple[str | None, bool]]:
    children = [graph.matrix] if graph.source is None else [graph.matrix, graph.source]
    return children, (graph.kind, graph._nonnegative)


def _unflatten(children: Any, context: tuple[str | None, bool]) -> DenseGraph:
    matrix, source = children if len(children) == 2 else (*children, None)
    return DenseGraph._of(matrix, source, *context)


_pytree.register_pytree_node(
    DenseGraph, _flatten, _unflatten, serialized_type_name="graphode.graphs.DenseGraph"
)
