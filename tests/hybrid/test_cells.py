"""Cells against torch's on a graph of loops, and against the paper's equations written out."""

import pytest
import torch
from torch import Tensor, nn

import graphode as gd
from tests.hybrid.loops import random_graph

NODES, IN, CHANNELS = 5, 2, 3
CELLS = {
    "gru": lambda **o: gd.GraphGRUCell(IN, CHANNELS, **o),
    "lstm": lambda **o: gd.GraphLSTMCell(IN, CHANNELS, **o),
    "rnn": lambda **o: gd.GraphRNNCell(IN, CHANNELS, **o),
    "stacked": lambda **o: gd.StackedCell(
        [gd.GraphLSTMCell(IN, 4, **o), gd.GraphGRUCell(4, CHANNELS, **o)]
    ),
    "last": lambda **o: gd.LastObservation(gd.GraphGRUCell(IN, CHANNELS, **o)),
}


def loops_only() -> gd.Graph:
    """The graph of which A is the identity."""
    return gd.Graph.from_dense(torch.eye(NODES))


def state_of(cell: gd.RecurrentCell, *batch: int) -> Tensor:
    return torch.randn(*batch, NODES, cell.parts.channels)


def test_the_gru_is_the_papers_equations():
    cell = gd.GraphGRUCell(IN, CHANNELS)
    graph = random_graph(NODES)
    a = graph.to_dense()
    h, x = state_of(cell), torch.randn(NODES, IN)
    # Rows: x, then h; columns: z, then r.
    theta_xz, theta_xr = cell.gates.weight[:IN].chunk(2, 1)
    theta_hz, theta_hr = cell.gates.weight[IN:].chunk(2, 1)
    theta_xh, theta_hh = cell.candidate.weight[:IN], cell.candidate.weight[IN:]
    z = torch.sigmoid(a @ x @ theta_xz + a @ h @ theta_hz)
    r = torch.sigmoid(a @ x @ theta_xr + a @ h @ theta_hr)
    candidate = torch.tanh(a @ x @ theta_xh + a @ (r * h) @ theta_hh)
    torch.testing.assert_close(cell(h, x, graph), z * h + (1 - z) * candidate)


def test_the_gru_has_the_papers_parameters_and_no_others():
    names = {name for name, _ in gd.GraphGRUCell(IN, CHANNELS).named_parameters()}
    assert names == {"gates.weight", "candidate.weight"}


def test_without_edges_the_gru_is_torchs():
    """Torch resets after the product: the same where that product is diagonal, without bias."""
    theirs = nn.GRUCell(IN, CHANNELS)
    ours = gd.GraphGRUCell(IN, CHANNELS, bias=True)
    with torch.no_grad():
        theirs.weight_hh[2 * CHANNELS :] = torch.diag(torch.randn(CHANNELS))
        theirs.bias_hh[2 * CHANNELS :] = 0
        (r_x, z_x, n_x), (r_h, z_h, n_h) = (
            weight.chunk(3) for weight in (theirs.weight_ih, theirs.weight_hh)
        )
        r_b, z_b, n_b = (theirs.bias_ih + theirs.bias_hh).chunk(3)
        ours.gates.weight.copy_(torch.cat([torch.cat([z_x, z_h], 1), torch.cat([r_x, r_h], 1)]).T)
        ours.gates.bias.copy_(torch.cat([z_b, r_b]))
        ours.candidate.weight.copy_(torch.cat([n_x, n_h], 1).T)
        ours.candidate.bias.copy_(n_b)
    h, x = state_of(ours), torch.randn(NODES, IN)
    torch.testing.assert_close(ours(h, x, loops_only()), theirs(x, h))


def test_without_edges_the_lstm_is_torchs():
    theirs, ours = nn.LSTMCell(IN, CHANNELS), gd.GraphLSTMCell(IN, CHANNELS, bias=True)
    with torch.no_grad():
        ours.gates.weight.copy_(torch.cat([theirs.weight_ih, theirs.weight_hh], 1).T)
        ours.gates.bias.copy_(theirs.bias_ih + theirs.bias_hh)
    state, x = state_of(ours), torch.randn(NODES, IN)
    h, c = theirs(x, tuple(state.chunk(2, -1)))
    torch.testing.assert_close(ours(state, x, loops_only()), torch.cat([h, c], -1))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_without_edges_the_rnn_is_torchs(activation):
    theirs = nn.RNNCell(IN, CHANNELS, nonlinearity=activation)
    ours = gd.GraphRNNCell(IN, CHANNELS, activation=activation, bias=True)
    with torch.no_grad():
        ours.gates.weight.copy_(torch.cat([theirs.weight_ih, theirs.weight_hh], 1).T)
        ours.gates.bias.copy_(theirs.bias_ih + theirs.bias_hh)
    h, x = state_of(ours), torch.randn(NODES, IN)
    torch.testing.assert_close(ours(h, x, loops_only()), theirs(x, h))


@pytest.mark.parametrize("name", CELLS)
def test_relabelling_nodes_relabels_the_jump(name):
    cell, graph = CELLS[name](), random_graph(NODES)
    h, x = state_of(cell), torch.randn(NODES, IN)
    order = torch.randperm(NODES)
    after = cell(h[order], x[order], graph.subgraph(order))
    torch.testing.assert_close(after, cell(h, x, graph)[order])


@pytest.mark.parametrize("name", CELLS)
def test_leading_dimensions_are_samples(name):
    cell, graph = CELLS[name](), random_graph(NODES)
    h, x = state_of(cell, 2, 3), torch.randn(2, 3, NODES, IN)
    after = cell(h, x, graph)
    torch.testing.assert_close(after[1, 2], cell(h[1, 2], x[1, 2], graph))


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize(
    ("gate", "product"),
    [
        (nn.Linear, lambda gate, h, graph: gate.module(h)),
        (
            lambda i, o: gd.GraphConvMap([i, 7, o], "relu"),
            lambda gate, h, graph: gate.field(0.0, h, graph),
        ),
        (gd.GraphConvolution, lambda gate, h, graph: gate(h, graph)),
    ],
    ids=["linear", "two layers", "convolution"],
)
def test_gates_can_be_any_operator(name, gate, product):
    cell, graph = CELLS[name](gate=gate), random_graph(NODES)
    h, x = state_of(cell), torch.randn(NODES, IN)
    assert cell(h, x, graph).shape == h.shape
    if name == "rnn":
        expected = torch.tanh(product(cell.gates, torch.cat([x, h], -1), graph))
        torch.testing.assert_close(cell(h, x, graph), expected)


def test_neighbours_first_or_channels_first_is_one_convolution():
    graph = random_graph(NODES)
    h = torch.randn(4, NODES, 3)
    wide = gd.GraphLSTMCell(1, 2, bias=True).gates
    expected = graph.to_dense() @ (h @ wide.weight) + wide.bias
    torch.testing.assert_close(wide(h, graph), expected)


def test_layers_observe_the_one_below():
    bottom, top = gd.GraphLSTMCell(IN, 4), gd.GraphGRUCell(4, CHANNELS)
    stacked, graph = gd.StackedCell([bottom, top]), random_graph(NODES)
    h, x = state_of(stacked), torch.randn(NODES, IN)
    low = bottom(h[:, :8], x, graph)
    high = top(h[:, 8:], low[:, :4], graph)
    torch.testing.assert_close(stacked(h, x, graph), torch.cat([low, high], -1))
    assert torch.equal(stacked.parts.seen(h), h[:, 8:])


def test_parts_that_are_held_stay_in_place():
    parts = gd.StackedCell([gd.GraphLSTMCell(IN, 2, cell_flows=False), gd.GraphGRUCell(2, 3)]).parts
    state = torch.arange(7.0)[None].expand(4, 7)
    assert parts.flow_channels == 5
    assert parts.flowing(state)[0].tolist() == [0, 1, 4, 5, 6]
    moved = parts.moved(state, -parts.flowing(state).expand(2, 4, 5))
    assert moved[1, 0].tolist() == [0, -1, 2, 3, -4, -5, -6]


@pytest.mark.parametrize("name", CELLS)
def test_gradcheck(name):
    cell, graph = CELLS[name](bias=True), random_graph(NODES)
    h, x = state_of(cell).requires_grad_(), torch.randn(NODES, IN, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h, x: cell(h, x, graph), (h, x))


def test_errors_name_the_remedy(without_type_checks):
    cell, graph = gd.GraphGRUCell(IN, CHANNELS), random_graph(NODES)
    with pytest.raises(ValueError, match="takes states of 3 channels a node, but 4 came"):
        cell(torch.zeros(NODES, 4), torch.zeros(NODES, IN), graph)
    with pytest.raises(ValueError, match="takes observations of 2 channels a node, but 1 came"):
        cell(torch.zeros(NODES, CHANNELS), torch.zeros(NODES, 1), graph)
    with pytest.raises(TypeError, match=r"`gate` must be a function .* but is a Linear"):
        gd.GraphGRUCell(IN, CHANNELS, gate=nn.Linear(5, 5))
    with pytest.raises(ValueError, match="`channels` must be 1 or more, but is 0"):
        gd.GraphRNNCell(IN, 0)
    with pytest.raises(ValueError, match="`cells` must hold at least one cell"):
        gd.StackedCell([])
    with pytest.raises(ValueError, match=r"what the one below shows, 3 channels.*takes 4"):
        gd.StackedCell([gd.GraphLSTMCell(IN, 3), gd.GraphGRUCell(4, 3)])
    with pytest.raises(ValueError, match="`observed` must be at most the 2 channels"):
        gd.LastObservation(cell, observed=3)
