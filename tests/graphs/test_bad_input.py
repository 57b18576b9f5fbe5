"""Every bad graph is refused with the same three things: expected, came, what to do."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from graphode.graphs import Graph

PATH = torch.tensor([[0, 1], [1, 2]])  # 0 → 1 → 2

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
        lambda: Graph(PATH, 3.5),  # pyright: ignore[reportArgumentType]
        ValueError,
        "`num_nodes` must be a whole number, 0 or more, but it is 3.5. Give the number of nodes, "
        "isolated ones included.",
    ),
    "an unknown number of nodes": (
        lambda: Graph(PATH, num_nodes=None),  # pyright: ignore[reportArgumentType]
        ValueError,
        "`num_nodes` must be a whole number, 0 or more, but it is None. Give the number of nodes, "
        "isolated ones included.",
    ),
    "a name for a number of nodes": (
        lambda: Graph(PATH, num_nodes="a"),  # pyright: ignore[reportArgumentType]
        ValueError,
        "`num_nodes` must be a whole number, 0 or more, but it is 'a'. Give the number of nodes, "
        "isolated ones included.",
    ),
    "an infinite number of nodes": (
        lambda: Graph(PATH, num_nodes=float("inf")),  # pyright: ignore[reportArgumentType]
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
        "`matrix` must be a sparse matrix of SciPy, but it is a ndarray. Use "
        "`Graph.from_dense(matrix)`.",
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
