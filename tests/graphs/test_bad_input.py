"""Every bad graph is refused with the same three things: expected, came, what to do."""

from collections.abc import Callable

import networkx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphode.graphs import (
    DenseGraph,
    Graph,
    dense_radius_graph,
    edge_lengths,
    nearest_graph,
    radius_graph,
)

PATH = torch.tensor([[0, 1], [1, 2]])  # 0 → 1 → 2


def weighing(weight: object) -> networkx.Graph:
    """Two edges, the second of this weight."""
    graph = networkx.Graph([("a", "b", {"weight": 2.0})])
    graph.add_edge("b", "c", weight=weight)
    return graph


TABLE: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "an edge index out of range": (
        lambda: Graph([[0], [3]], 3),
        ValueError,
        "`edge_index` must hold node numbers below `num_nodes` = 3, but it holds 3. Give "
        "`num_nodes=4` or more, or renumber the nodes from 0.",
    ),
    "a negative edge index": (
        lambda: Graph([[0], [-1]], 3),
        ValueError,
        "`edge_index` must hold node numbers from 0 to 2, but it holds the negative -1. Number the "
        "nodes from 0 and drop padded edges.",
    ),
    "an edge on a graph without nodes": (
        lambda: Graph([[0], [0]], 0),
        ValueError,
        "`edge_index` must hold node numbers below `num_nodes` = 0, but it holds 0. Give "
        "`num_nodes=1` or more, or renumber the nodes from 0.",
    ),
    "a float edge index": (
        lambda: Graph(PATH.double(), 3),
        TypeError,
        "`edge_index` must hold integers (node numbers), but its dtype is torch.float64. Convert "
        "it with `edge_index.long()`; for an adjacency matrix use `Graph.from_dense`.",
    ),
    "a boolean edge index": (
        lambda: Graph(PATH.bool(), 3),
        TypeError,
        "`edge_index` must hold integers (node numbers), but its dtype is torch.bool. Convert "
        "it with `edge_index.long()`; for an adjacency matrix use `Graph.from_dense`.",
    ),
    "a transposed edge index": (
        lambda: Graph([[0, 1], [1, 2], [2, 0]], 3),
        ValueError,
        "`edge_index` must have shape [2, edges], sources over targets, but its shape is [3, 2]. "
        "Transpose it: `edge_index.t()`.",
    ),
    "an edge index of one dimension": (
        lambda: Graph([0, 1, 2], 3),
        ValueError,
        "`edge_index` must have shape [2, edges], sources over targets, but its shape is [3]. "
        "Stack the sources over the targets: `torch.stack([source, target])`; a graph without "
        "edges has shape [2, 0].",
    ),
    "a fraction of a node": (
        lambda: Graph(PATH, 3.5),
        ValueError,
        "`num_nodes` must be a whole number, 0 or more, but it is 3.5. Give the number of nodes, "
        "isolated ones included.",
    ),
    "an unknown number of nodes": (
        lambda: Graph(PATH, num_nodes=None),
        ValueError,
        "`num_nodes` must be a whole number, 0 or more, but it is None. Give the number of nodes, "
        "isolated ones included.",
    ),
    "a name for a number of nodes": (
        lambda: Graph(PATH, num_nodes="a"),
        ValueError,
        "`num_nodes` must be a whole number, 0 or more, but it is 'a'. Give the number of nodes, "
        "isolated ones included.",
    ),
    "an infinite number of nodes": (
        lambda: Graph(PATH, num_nodes=float("inf")),
        ValueError,
        "`num_nodes` must be a whole number, 0 or more, but it is inf. Give the number of nodes, "
        "isolated ones included.",
    ),
    "weights that are not finite": (
        lambda: Graph(PATH, 3, [1.0, float("nan")]),
        ValueError,
        "`edge_weight` must be finite, but edge 1 (1 → 2) has weight nan; 1 of 2 are not finite. "
        "Drop these edges, or repair their weights.",
    ),
    "weights of another length": (
        lambda: Graph(PATH, 3, [1.0]),
        ValueError,
        "`edge_weight` must have shape [2], one weight for each edge of `edge_index`, but its "
        "shape is [1]. Give the weights in the order of the edges, or None for ones.",
    ),
    "complex weights": (
        lambda: Graph(PATH, 3, [1j, 1.0]),
        TypeError,
        "`edge_weight` must be real, but its dtype is torch.complex128. Use two graphs, for the "
        "real and the imaginary part.",
    ),
    "weights on another device": (
        lambda: Graph(PATH, 3, torch.ones(2, device="meta")),
        ValueError,
        "`edge_weight` must be on the device of `edge_index`, cpu, but it is on meta. Move one of "
        'them, or use `Graph.to("meta")` afterwards.',
    ),
    "a state of other nodes": (
        lambda: Graph(PATH, 3).propagate(torch.randn(2, 4, 5)),
        ValueError,
        "The state must have shape [..., nodes, channels] with 3 nodes, as the graph has, but its "
        "shape is [2, 4, 5]. Put nodes second to last, or use the graph that the state lives on.",
    ),
    "a state of other nodes than those of a batch": (
        lambda: Graph.batch([Graph(PATH, 3), Graph(PATH, 4)]).propagate(torch.randn(6, 5)),
        ValueError,
        "The state must have shape [..., nodes, channels] with 7 nodes, as the graph has in all, "
        "the batch of 2 graphs having 3, 4, but its shape is [6, 5]. Put nodes second to last, or "
        "use the graph that the state lives on.",
    ),
    "a state on another device": (
        lambda: Graph(PATH, 3).propagate(torch.randn(3, 2, device="meta")),
        ValueError,
        "The state must be on the graph's device, cpu, but it is on meta. Move the graph once with "
        '`graph.to("meta")`.',
    ),
    "a state of integers": (
        lambda: Graph(PATH, 3).propagate(torch.ones(3, 2, dtype=torch.int64)),
        TypeError,
        "The state must have a real floating dtype, but it has torch.int64. Convert it with "
        "`h.to(torch.get_default_dtype())`.",
    ),
    "an unknown normalisation": (
        lambda: Graph(PATH, 3).normalize("symmetric"),
        ValueError,
        "Unknown normalisation 'symmetric'. Choose one of: sym, rw, laplacian, sym_laplacian, "
        "rw_laplacian.",
    ),
    "a normalisation of negative weights": (
        lambda: Graph(PATH, 3, [1.0, -2.0]).normalize("rw"),
        ValueError,
        'The normalisation "rw" needs weights of 0 or more, since degrees may vanish or be '
        "negative otherwise, but the lowest weight is -2. Use their absolute values or a kernel of "
        'them, or the kind "laplacian", which divides by nothing.',
    ),
    "a second normalisation": (
        lambda: Graph(PATH, 3).normalize("rw").normalize("sym"),
        ValueError,
        "The graph is already normalised ('rw'), and normalising twice is rarely meant. Use "
        '`graph.source.normalize("sym")`, or `Graph(graph.edge_index, graph.num_nodes, '
        "graph.edge_weight)` for its weights as a new graph.",
    ),
    "a matrix that is not square": (
        lambda: Graph.from_dense(torch.ones(2, 3)),
        ValueError,
        "The matrix of a graph must be square, nodes × nodes, but its shape is [2, 3]. Give one "
        "row and one column for every node.",
    ),
    "a dense matrix for a sparse one": (
        lambda: Graph.from_scipy(np.eye(3)),
        TypeError,
        "`matrix` must be a sparse matrix of SciPy or torch, but it is a ndarray. Use "
        "`Graph.from_dense(matrix)`.",
    ),
    "a sparse tensor for a dense one": (
        lambda: Graph.from_dense(torch.eye(3).to_sparse()),
        TypeError,
        "`matrix` must be dense, but its layout is torch.sparse_coo. Use "
        "`Graph.from_scipy(matrix)`.",
    ),
    "a weight in words": (
        lambda: Graph.from_networkx(weighing("heavy")),
        ValueError,
        "The attribute 'weight' of an edge must be a number, but that of 'b' → 'c' is 'heavy'. "
        "Give every such edge a number, or name another attribute: "
        '`Graph.from_networkx(g, weight="…")`.',
    ),
    "a weight of None": (
        lambda: Graph.from_networkx(weighing(None)),
        ValueError,
        "The attribute 'weight' of an edge must be a number, but that of 'b' → 'c' is None. "
        "Give every such edge a number, or name another attribute: "
        '`Graph.from_networkx(g, weight="…")`.',
    ),
    "positions of one dimension": (
        lambda: radius_graph(torch.rand(5), 0.5),
        ValueError,
        "`positions` must have shape [*batch, nodes, dims], but their shape is [5]. For nodes on a "
        "line give `positions[:, None]`.",
    ),
    "positions of one dimension, for a matrix": (
        lambda: dense_radius_graph(torch.rand(5), 0.5),
        ValueError,
        "`positions` must have shape [*batch, nodes, dims], but their shape is [5]. For nodes on a "
        "line give `positions[:, None]`.",
    ),
    "positions of one dimension, for the nearest": (
        lambda: nearest_graph(torch.rand(5), 2),
        ValueError,
        "`positions` must have shape [*batch, nodes, dims], but their shape is [5]. For nodes on a "
        "line give `positions[:, None]`.",
    ),
    "positions of other nodes": (
        lambda: edge_lengths(Graph(PATH, 3), torch.rand(4, 2)),
        ValueError,
        "`positions` must have shape [*batch, nodes, dims] with 3 nodes in all, as the graph has, "
        "but their shape is [4, 2]. Give the positions that the graph was made from.",
    ),
    "a graph for a list of graphs": (
        lambda: Graph.batch(Graph(PATH, 3)),
        TypeError,
        "`Graph.batch` takes graphs in a list, but it got a Graph. A batch of one is "
        "`Graph.batch([graph])`.",
    ),
    "a batch of what is no graph": (
        lambda: Graph.batch([Graph(PATH, 3), Data(edge_index=PATH)]),
        TypeError,
        "`Graph.batch` takes graphs, but number 1 is a Data. Use `Graph.from_pyg(data)` for each.",
    ),
    "a matrix of complex numbers": (
        lambda: DenseGraph(1j * torch.eye(2)),
        TypeError,
        "`matrix` must be real, but its dtype is torch.complex128. Use two graphs, for the real "
        "and the imaginary part.",
    ),
    "a batch of no graph": (
        lambda: Graph.batch([]),
        ValueError,
        "`Graph.batch` needs at least one graph, but the list is empty. Skip empty batches.",
    ),
}


@pytest.mark.usefixtures("without_type_checks")  # which would anticipate some of them
@pytest.mark.parametrize(("build", "error", "text"), TABLE.values(), ids=TABLE.keys())
def test_bad_input_is_refused_by_name(build: Callable[[], object], error: type, text: str):
    with pytest.raises(error) as caught:
        build()
    assert str(caught.value) == text


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    "graph",
    [
        Graph(PATH, 3),
        Graph.batch([Graph(PATH, 3)] * 2),
        DenseGraph(torch.eye(3)),
        DenseGraph(torch.ones(2, 3, 3)),
    ],
    ids=["edges", "a batch", "a matrix", "matrices"],
)
def test_a_state_that_is_no_dense_tensor_is_refused_by_name(graph: Graph):
    h = torch.ones(graph.num_nodes, 2)
    for state, came, remedy in (
        (h.numpy(), "a ndarray", "torch.as_tensor(h)"),
        (h.tolist(), "a list", "torch.as_tensor(h)"),
        (h.to_sparse(), "a tensor of layout torch.sparse_coo", "h.to_dense()"),
        (h.to_sparse_csr(), "a tensor of layout torch.sparse_csr", "h.to_dense()"),
    ):
        with pytest.raises(TypeError) as caught:
            graph.propagate(state)
        assert str(caught.value) == (
            f"The state must be a dense tensor, but it is {came}. Convert it with `{remedy}`."
        )
