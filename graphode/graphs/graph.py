"""The graph: nodes, weighted edges, and the one sparse product that fields are made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphode.graphs import batch, convert, full
from graphode.graphs.normalization import normalized
from graphode.graphs.pattern import Pattern
from graphode.graphs.product import is_plain, product_of_samples
from graphode.graphs.validation import (
    ArrayLike,
    check_dtype,
    check_finite,
    checked_edge_index,
    checked_edge_weight,
    checked_num_nodes,
    checked_state,
    is_shared,
    merge_duplicates,
    own_weight,
)


class Graph:
    """A directed, weighted graph: frozen, validated once, cheap to pass around.

    Edges run source → target as in PyG, and the graph acts on a state by

        propagate(h)[i] = Σ_{j→i} w_ji h_j,    or  A h  with  A[target, source] = weight.

    An undirected graph has both directions of every edge. Edges keep the order they were given
    in, so that edge attributes kept elsewhere stay aligned; edges given twice are merged, their
    weights summed, with a warning. What it is given is copied. Only parameters, and weights that
    require gradients, stay those of their owner: they receive gradients, and the graph follows them
    when they are trained. A graph that is normalised from such weights belongs to one backward
    pass, so normalise it at every step.

    Args:
        edge_index: Integers [2, edges], sources over targets.
        num_nodes: Number of nodes, isolated ones included.
        edge_weight: One finite weight per edge [edges]; ones by default.

    Attributes:
        source: The graph that this one was normalised from, or None.
        kind: The name of the normalisation, or None.
    """

    num_nodes: int
    edge_weight: Float[Tensor, " edges"]
    source: Graph | None
    kind: str | None
    _pattern: Pattern
    _is_shared = False  # also of one that was saved before it had this
    _keep_mask: Tensor | None = None  # of each edge, 0 where it was dropped; None if none ever was
    _is_symmetric: bool | None
    _constants: dict[torch.dtype, tuple[Tensor, Tensor]]
    _matrices: dict[torch.dtype, Tensor]

    def __init__(
        self, edge_index: ArrayLike, num_nodes: int, edge_weight: ArrayLike | None = None
    ) -> None:
        num_nodes = checked_num_nodes(num_nodes)
        edge_index = checked_edge_index(edge_index, num_nodes)
        weight = checked_edge_weight(edge_weight, edge_index)
        check_finite(weight, edge_index)
        edge_index, weight = merge_duplicates(edge_index, weight, num_nodes)
        self._fill(Pattern(edge_index.clone(), num_nodes), own_weight(weight))

    @classmethod
    def from_pyg(cls, data: Any) -> Graph:
        """A PyG `Data`: its `edge_index` and its `edge_weight`, or else a 1-D `edge_attr`.

        After `ToSparseTensor` it is the matrix `adj_t` that is read.
        A `Batch`, as a `DataLoader` yields it, is a batch of graphs here too.
        """
        graph = cls(*convert.from_pyg(data))
        sizes = convert.sizes_in_pyg(data, graph.edge_index)
        if sizes is None:
            return graph
        return Graph._trusted(graph._pattern.divided(sizes), graph.edge_weight)

    @classmethod
    def from_networkx(cls, graph: Any, weight: str = "weight") -> Graph:
        """A networkx graph, nodes in its own order; undirected edges run both ways.

        Edges without the attribute `weight` weigh 1.
        """
        return cls(*convert.from_networkx(graph, weight))

    @classmethod
    def from_scipy(cls, matrix: Any) -> Graph:
        """A square sparse matrix a with `propagate(h) = a @ h`: a[i, j] weighs j → i.

        Of SciPy, or a sparse tensor of torch in any layout.
        """
        return cls(*convert.from_scipy(matrix))

    @classmethod
    def from_dense(cls, matrix: ArrayLike) -> Graph:
        """A square matrix a with `propagate(h) = a @ h`: a[i, j] ≠ 0 weighs the edge j → i.

        Gradients reach the non-zero entries of `matrix`.
        """
        return cls(*convert.from_dense(matrix))

    def propagate(
        self, h: Float[Tensor, "*batch nodes channels"]
    ) -> Float[Tensor, "*batch nodes channels"]:
        """Σ_{j→i} w_ji h_j at every node i, for all leading dimensions at once.

        The weights follow the dtype of `h`; they are as exact as the dtype they were given, or
        normalised, in.
        """
        flat = checked_state(self.flatten(h), self)
        if full.is_full(self):
            product = full.product(self, flat)
        else:
            values, values_t = self._operands(h.dtype)
            product = product_of_samples(values, values_t, flat, self._pattern.places)
        return product if flat is h else product.reshape(h.shape)

    def flatten(
        self, h: Float[Tensor, "*batch nodes channels"]
    ) -> Float[Tensor, "*fewer all_nodes channels"]:
        """A state with all the nodes of a batch in one dimension, as `edge_index` numbers them.

        States that are so already, and those of a graph alone, come back as they are.
        """
        return self._pattern.flatten(h)

    def normalize(self, kind: str, self_loops: bool | None = None) -> Graph:
        """A new graph with a normalised matrix, which remembers this one as its `source`.

            "sym"            D^(-1/2) A D^(-1/2)       (GCN; Kipf and Welling, 2017)
            "rw"             D^(-1) A                  (rows sum to 1)
            "laplacian"      D − A
            "sym_laplacian"  D^(-1/2) (D − A) D^(-1/2)
            "rw_laplacian"   D^(-1) (D − A)

        D holds the weights that arrive at each node. Where nothing arrives, D^(-1) is read as 0,
        so an isolated node has an empty row (and no NaN); PyG's Laplacians have a 1 there. So is
        D^(-1/2) of a degree below the normal numbers of its dtype, where D^(-1) is infinite; no
        gradient passes there.

        Args:
            kind: One of the five names above.
            self_loops: Whether A first gains a self-loop of weight 1 at every node that has none
                (a loop already there is kept as it is, like PyG's `gcn_norm`). By default they
                are added for "sym" and "rw" and not for the Laplacians.
        """
        edge_index, weight, keep_mask = normalized(self, kind, self_loops)
        like = self._pattern
        if edge_index is not self.edge_index:
            like = Pattern(edge_index, self.num_nodes, like.sizes, like.batch_shape, like.lasts)
        return Graph._trusted(like, weight, source=self, kind=kind, keep_mask=keep_mask)

    def reverse(self) -> Graph:
        """The graph with every edge turned round: its matrix transposed."""
        if self.kind is not None:
            raise ValueError(
                "`reverse` needs a graph that is not normalised, since turning edges round changes "
                f"the degrees, but this one is ({self.kind!r}). Use "
                f'`graph.source.reverse().normalize("{self.kind}")`.'
            )
        pattern = self._pattern.reverse()
        return Graph._trusted(pattern, self.edge_weight, keep_mask=self._keep_mask)

    def reweight(self, edge_weight: ArrayLike) -> Graph:
        """The same edges with other weights, in the order of `edge_index`; not normalised.

        Cheap: meant for weights that are learned, or computed from a state, at every step. It
        looks at their shape only, never at their values, so it may be compiled and transformed.
        """
        weight = checked_edge_weight(edge_weight, self.edge_index)
        return Graph._trusted(self._pattern, own_weight(weight), prepare=False)

    def _thin(self, mask: Tensor) -> Graph:
        """The graph without the edges where `mask` is 0, the weights of the rest multiplied by it.

        They stay in the pattern, so that no shape depends on a value; fields that look at edges
        alone pass them over.
        """
        before = self._keep_mask
        # Above 0 where both are, however many there are: a product might overflow.
        both = mask if before is None else torch.minimum(before, mask)
        weight = self.edge_weight * mask
        return Graph._trusted(self._pattern, weight, prepare=False, keep_mask=both)

    def to(self, *args: Any, **kwargs: Any) -> Graph:
        """The same graph on another device, or with weights of another dtype, as `Tensor.to`."""
        weight = self.edge_weight.to(*args, **kwargs)
        check_dtype(weight.dtype)
        if weight is self.edge_weight:
            return self
        source = None if self.source is None else self.source.to(*args, **kwargs)
        pattern = self._pattern
        if weight.device != self.device:
            pattern = pattern.to(weight.device)
        mask = None if self._keep_mask is None else self._keep_mask.to(*args, **kwargs)
        return Graph._trusted(pattern, weight, source, self.kind, keep_mask=mask)

    def subgraph(self, nodes: ArrayLike) -> Graph:
        """The graph induced on `nodes`, renumbered in their order; a boolean mask also selects.

        The weights are kept as they are, those of a normalised graph too: to normalise with the
        degrees of the subgraph, take the subgraph first.
        """
        if self.num_graphs > 1:
            raise ValueError(
                f"`subgraph` takes nodes of one graph, but this is a batch of {self.num_graphs}. "
                "Use it on the graphs in `graph.unbatch()`, and batch the results."
            )
        kept = convert.distinct_nodes(nodes, self.num_nodes, self.device)
        position = kept.new_full((self.num_nodes,), -1)
        position[kept] = torch.arange(len(kept), device=self.device)
        renumbered = position[self.edge_index]
        inside = (renumbered >= 0).all(0).nonzero()[:, 0]
        pattern = Pattern(renumbered[:, inside], len(kept), lasts=self._pattern.lasts)
        weight = self.edge_weight.index_select(0, inside)
        source = None if self.source is None else self.source.subgraph(kept)
        mask = None if self._keep_mask is None else self._keep_mask.index_select(0, inside)
        return Graph._trusted(pattern, weight, source, self.kind, keep_mask=mask)

    @staticmethod
    def batch(graphs: Iterable[Graph]) -> Graph:
        """Many graphs as one, block after block; a batch of normalised graphs is normalised.

        The batch acts on states `[..., all nodes, channels]`, one graph after the other, with
        `node_graph` to say whose a node is. Where all graphs have the same number of nodes, it
        acts as well on states `[..., graphs, nodes, channels]`.
        """
        graphs = batch.checked(graphs)
        sources = [graph.source for graph in graphs if graph.source is not None]
        pattern, weight, mask = batch.joined(graphs)
        source = Graph.batch(sources) if sources else None
        return Graph._trusted(pattern, weight, source, graphs[0].kind, keep_mask=mask)

    def unbatch(self) -> list[Graph]:
        """The graphs of a batch, in their order."""
        sources = [None] * self.num_graphs if self.source is None else self.source.unbatch()
        parts = zip(batch.separated(self), sources, strict=True)
        return [
            Graph._trusted(pattern, weight, source, self.kind, keep_mask=mask)
            for (pattern, weight, mask), source in parts
        ]

    @property
    def num_graphs(self) -> int:
        """How many graphs are batched in this one, perhaps none; 1 if it is alone."""
        return len(self.sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of nodes of each graph of a batch."""
        return (self.num_nodes,) if self._pattern.sizes is None else self._pattern.sizes

    @property
    def node_graph(self) -> Int[Tensor, " nodes"]:
        """The graph, from 0 to `num_graphs` − 1, that each node of a batch belongs to."""
        return self._pattern.node_graph

    @property
    def edge_index(self) -> Int[Tensor, "2 edges"]:
        """Edges as (source, target)."""
        return self._pattern.edge_index

    @property
    def num_edges(self) -> int:
        """Directed edges, self-loops included."""
        return self.edge_index.shape[1]

    @property
    def device(self) -> torch.device:
        """Where edges and weights are."""
        return self.edge_weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the edge weights."""
        return self.edge_weight.dtype

    @property
    def is_symmetric(self) -> bool:
        """Whether every edge has its reverse, of the same weight."""
        if self._is_symmetric is not None:
            return self._is_symmetric
        if not self._pattern.is_symmetric:
            return False
        values = self._pattern.arrange(self.edge_weight.detach())
        return torch.equal(values, values.index_select(0, self._pattern.places.order))

    @property
    def degrees(self) -> Float[Tensor, " nodes"]:
        """The weight that arrives at each node: Σ_{j→i} w_ji."""
        ones = self.edge_weight.new_ones(self.num_nodes, 1)
        # The sparse product, whatever the graph: a dense one may be rounded to TF32.
        return product_of_samples(*self._operands(self.dtype), ones, self._pattern.places)[:, 0]

    @property
    def diagonal(self) -> Float[Tensor, " nodes"]:
        """The weight of the self-loop of each node; 0 where there is none."""
        source, target = self.edge_index
        loops = torch.where(source == target, self.edge_weight, 0.0)
        return loops.new_zeros(self.num_nodes).index_add(0, target, loops)

    def to_dense(self) -> Float[Tensor, "nodes nodes"]:
        """The matrix A with A[target, source] = weight; small graphs only."""
        source, target = self.edge_index
        zeros = self.edge_weight.new_zeros(self.num_nodes, self.num_nodes)
        return zeros.index_put((target, source), self.edge_weight)

    def __repr__(self) -> str:
        kind = "" if self.kind is None else f", kind={self.kind!r}"
        if self._pattern.sizes is not None:
            kind += f", num_graphs={self.num_graphs}"
        return (
            f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}{kind}, "
            f"dtype={str(self.dtype).removeprefix('torch.')}, device={str(self.device)!r})"
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"A Graph is frozen: `{name}` cannot be set. Build a new one, for instance "
            "`Graph(graph.edge_index, graph.num_nodes, edge_weight=…)`."
        )

    @staticmethod
    def _trusted(
        pattern: Pattern,
        edge_weight: Any,
        source: Graph | None = None,
        kind: str | None = None,
        prepare: bool = True,
        keep_mask: Any = None,
    ) -> Graph:
        graph = object.__new__(Graph)
        graph._fill(pattern, edge_weight, source, kind, prepare, keep_mask)
        return graph

    def _fill(
        self,
        pattern: Pattern,
        edge_weight: Any,
        source: Graph | None = None,
        kind: str | None = None,
        prepare: bool = True,
        keep_mask: Any = None,
    ) -> None:
        # Weights and mask may be any leaves when a tree function rebuilds the graph.
        self.__dict__.update(
            _pattern=pattern,
            num_nodes=pattern.num_nodes,
            edge_weight=edge_weight,
            source=source,
            kind=kind,
            _is_shared=is_shared(edge_weight),
            _keep_mask=keep_mask,
            _is_symmetric=None,
            _constants={},
            _matrices={},
        )
        # The tangents of symmetric weights need not be symmetric.
        if prepare and self._is_constant and is_plain(edge_weight):
            self.__dict__["_is_symmetric"] = self.is_symmetric
            self._operands(edge_weight.dtype)

    @property
    def _is_constant(self) -> bool:
        """Whether nobody changes the weights, so that what is made of them may be kept."""
        return not (self._is_shared or self.edge_weight.requires_grad)

    def _operands(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """The entries of A in CSR order and, where they are constants, those of Aᵀ."""
        if not self._is_constant:
            return self._pattern.arrange(self.edge_weight.to(dtype)), None
        known = self._constants.get(dtype)
        if known is None:
            if torch.compiler.is_compiling():
                return self._arranged(dtype)
            if torch.is_inference_mode_enabled():
                with torch.inference_mode(False):  # a later call may need gradients
                    return self._operands(dtype)
            known = self._constants[dtype] = self._arranged(dtype)
        return known

    def _arranged(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        values = self._pattern.arrange(self.edge_weight.to(dtype))
        order = self._pattern.places.order
        return values, values if self._is_symmetric else values.index_select(0, order)
