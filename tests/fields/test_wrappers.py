"""Wrappers: what they pack, what they conserve, and whose gradients they keep."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import graphode as gd
from graphode import fields as F
from tests.fields.registry import mlp, varied, weighted_graph

GRADIENTS = ("backprop", "checkpoint", "adjoint", "checkpoint_adjoint")


def springs(t: Tensor, x: Tensor, graph: gd.Graph) -> Tensor:
    """x″ = −L x, a linear oscillator for each mode of the graph."""
    return -graph.propagate(x)


def test_leapfrog_conserves_the_energy_of_oscillators():
    graph = weighted_graph().normalize("laplacian")
    field = F.SecondOrder(springs)
    x, v = torch.randn(2, 6, 3), torch.randn(2, 6, 3)
    flow = gd.Flow(field, solver="leapfrog", num_steps=2000)
    states = flow.solve(field.pack(x, v), graph, torch.linspace(0, 40, 21)).states
    positions, velocities = states.chunk(2, -1)
    potential = (positions * graph.propagate(positions)).sum((-2, -1))
    energy = potential / 2 + velocities.square().sum((-2, -1)) / 2
    assert ((energy / energy[0] - 1).abs() < 1e-3).all()
    torch.testing.assert_close(field.unpack(states), positions)


def test_second_order_is_the_oscillator_it_says():
    field = F.SecondOrder(lambda t, x, graph: -x)
    x, v = torch.randn(5, 2), torch.randn(5, 2)
    flow = gd.Flow(field, rtol=1e-9, atol=1e-9)
    moved = flow(field.pack(x, v), t1=2.0)
    expected = math.cos(2) * x + math.sin(2) * v
    torch.testing.assert_close(field.unpack(moved), expected, rtol=1e-6, atol=1e-6)
    third = F.HigherOrder(lambda t, z, graph: torch.full_like(z[..., :2], 6.0), order=3)
    cubic = gd.Flow(third, solver="rk4", num_steps=1)(third.pack(x), t1=2.0)
    torch.testing.assert_close(third.unpack(cubic), x + 8)


@pytest.mark.parametrize("how", ["add", "concat", "source"])
def test_gradients_through_a_controlled_source(how):
    inside = F.GraphConvMap([7, 4]) if how == "concat" else F.GraphConvField([4, 4])
    field = F.Controlled(inside, 4, control_channels=3, how=how)
    graph = weighted_graph().normalize("sym")
    h = torch.randn(2, 6, 4)
    source = torch.randn(2, 6, 5, requires_grad=True)
    encoder = nn.Linear(5, 3)
    found = []
    for gradient in GRADIENTS:
        flow = gd.Flow(field, rtol=1e-8, atol=1e-8, gradient=gradient)
        moved = field.unpack(flow(field.pack(h, encoder(source)), graph))
        inputs = [source, *encoder.parameters(), *field.parameters()]
        found.append(torch.autograd.grad(moved.square().sum(), inputs))
    assert found[0][0].abs().max() > 1e-3
    for gradient, other in zip(GRADIENTS, found, strict=True):
        for exact, mine in zip(found[0], other, strict=True):
            torch.testing.assert_close(mine, exact, rtol=1e-5, atol=1e-7, msg=gradient)


def test_the_controlled_input_does_not_move():
    field = F.Controlled(F.GraphConvField([4, 4]), 4)
    graph, h = weighted_graph().normalize("sym"), torch.randn(3, 6, 4)
    states = gd.Flow(field).solve(field.pack(h), graph, [0.0, 1.0, 2.0]).states
    assert torch.equal(states[..., 4:], h.expand(3, 3, 6, 4))


def test_nested_wrappers_unpack_what_they_packed():
    inside = F.Augmented(F.GraphConvField([6, 6]), 2, lift=nn.Linear(4, 2))
    field = F.SecondOrder(F.Controlled(inside, 6, control_channels=4))
    h = torch.randn(3, 6, 4)
    packed = field.pack(h)
    assert packed.shape == (3, 6, 20)
    assert torch.equal(F.unpack(field, packed), h)
    assert torch.equal(F.unpack(field, torch.stack([packed, packed])), torch.stack([h, h]))


def test_time_concatenated_is_seen():
    field = F.TimeConcat(lambda t, z, graph: z[..., -1:].expand_as(z))
    h = torch.zeros(2, 3, 4)
    t = torch.tensor([0.5, 2.0]).reshape(2, 1, 1)
    torch.testing.assert_close(field(t, h, None), t.expand_as(h))
    moved = gd.Flow(field, solver="rk4", num_steps=2)(h, t1=3.0)
    torch.testing.assert_close(moved, torch.full_like(h, 4.5))


@pytest.mark.parametrize("basis", ["polynomial", "chebyshev", "fourier"])
def test_an_expansion_starts_constant_and_then_varies(basis):
    graph, h = weighted_graph().normalize("sym"), torch.randn(6, 4)
    inside = F.GraphConvField([4, 4])
    field = F.DepthVarying(inside, 3, basis)
    torch.testing.assert_close(field(0.7, h, graph), inside(0.7, h, graph))
    varied(field)
    assert (field(0.7, h, graph) - field(0.2, h, graph)).abs().max() > 1e-2


def test_an_expansion_adds_its_terms():
    graph, h = weighted_graph().normalize("sym"), torch.randn(6, 4)
    field = varied(F.DepthVarying(F.GraphConvField([4, 4], bias=False), 2, "polynomial", t1=2.0))
    weight = field.field.layers[0].weight + 0.25 * field.terms[0][0] + 0.0625 * field.terms[0][1]
    torch.testing.assert_close(field(0.5, h, graph), graph.propagate(h @ weight))


@pytest.mark.parametrize("redraw", ["per_solve", "per_step"])
@pytest.mark.parametrize("named", [False, True])
def test_samples_at_depths_of_their_own_have_the_masks_they_have_alone(redraw, named: bool):
    field = varied(F.DepthVarying(F.GraphConvField([4, 4], dropout=0.5, redraw=redraw), 2))
    graph, h = weighted_graph().normalize("sym"), torch.randn(2, 3, 6, 4)
    sample, ends = torch.arange(6).reshape(2, 3), torch.linspace(0.5, 1.0, 6).reshape(2, 3)
    flow = gd.Flow(field)
    with gd.stochastic(3, 5, sample=sample if named else None):
        together = flow(h, graph, 0.0, ends)
    for place in itertools.product(range(2), range(3)):
        with gd.stochastic(3, 5, sample=sample[place] if named else None):
            alone = flow(h[place], graph, 0.0, ends[place])
        torch.testing.assert_close(together[place], alone, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "checkpoint_adjoint"])
def test_samples_at_depths_of_their_own_may_flow_down_an_energy(gradient: str):
    class Descent(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 1)

        def forward(self, t, h, graph):
            with torch.enable_grad():
                h = h if h.requires_grad else h.detach().requires_grad_()
                energy = torch.tanh(self.linear(h)).sum()
                return -torch.autograd.grad(energy, h, create_graph=True)[0]

    field = gd.DepthVarying(Descent())
    h = torch.randn(2, 4, 3, requires_grad=True)
    flow = gd.Flow(field, rtol=1e-9, atol=1e-9, gradient=gradient)
    end = flow(h)
    with torch.no_grad():
        torch.testing.assert_close(flow(h), end)
    (together,) = torch.autograd.grad(end.sum(), h)
    alone = [torch.autograd.grad(gd.Flow(field, rtol=1e-9, atol=1e-9)(s).sum(), s)[0] for s in h]
    torch.testing.assert_close(together, torch.stack(alone), rtol=1e-6, atol=1e-6)


def test_depths_of_graphs_of_different_sizes_name_fixed_steps():
    graphs = [weighted_graph(nodes).normalize("sym") for nodes in (3, 5)]
    batch = gd.Graph.batch(graphs)
    for field in (F.DepthVarying(F.GraphConvField([4, 4])), F.GCNIIField(4, layers=2)):
        z = F.pack(field, torch.randn(8, 4))
        with pytest.raises(ValueError, match=r"fixed steps, .* `Flow\(field, solver='rk4', num_st"):
            gd.Flow(field)(z, batch)
        flow = gd.Flow(field, solver="rk4", num_steps=2)
        alone = [flow(part, graph) for part, graph in zip(z.split((3, 5)), graphs, strict=True)]
        torch.testing.assert_close(flow(z, batch), torch.cat(alone))


def test_messages_are_summed_over_arriving_edges():
    graph = weighted_graph()
    field = F.MessagePassingField(mlp(10, 3), mlp(3, 4))
    attributes = torch.randn(graph.num_edges, 2)
    h = torch.randn(6, 4)
    dense = torch.zeros(6, 3)
    for k, (u, v) in enumerate(graph.edge_index.t().tolist()):
        seen = torch.cat([h[v], h[u], attributes[k]])
        dense[v] += graph.edge_weight[k] * field.message(seen)
    found = field(0.0, h, F.AttributedGraph(graph, attributes))
    torch.testing.assert_close(found, field.update(dense))


def test_gradients_reach_edge_attributes_by_every_method():
    graph = weighted_graph()
    field = F.MessagePassingField(mlp(10, 4))
    attributes = torch.randn(graph.num_edges, 2, requires_grad=True)
    h, found = torch.randn(2, 6, 4), []
    for gradient in GRADIENTS:
        flow = gd.Flow(field, rtol=1e-8, atol=1e-8, gradient=gradient)
        moved = flow(h, F.AttributedGraph(graph, attributes))
        found += torch.autograd.grad(moved.square().sum(), attributes)
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-5, atol=1e-7)


def test_graphs_with_attributes_may_be_at_depths_of_their_own():
    graphs = [weighted_graph(4, seed=seed) for seed in (0, 1)]
    attributes = [torch.randn(graph.num_edges, 2) for graph in graphs]
    joined = gd.Graph.batch(graphs)
    order = torch.randperm(joined.num_edges)  # edges of a batch need not lie graph after graph
    data = Data(
        edge_index=joined.edge_index[:, order],
        edge_weight=joined.edge_weight[order],
        num_nodes=8,
        ptr=torch.tensor([0, 4, 8]),
    )
    batch = F.AttributedGraph(gd.Graph.from_pyg(data), torch.cat(attributes)[order])
    field = varied(F.DepthVarying(F.MessagePassingField(mlp(10, 4)), 2))
    h, t = torch.randn(2, 4, 4), torch.rand(2, 1, 1)
    together = field(t, h, batch)
    for k, parts in enumerate(zip(graphs, attributes, strict=True)):
        torch.testing.assert_close(together[k], field(t[k], h[k], F.AttributedGraph(*parts)))


def test_graphs_of_a_batch_with_attributes_have_their_own_steps():
    graphs = [weighted_graph(nodes, seed=nodes) for nodes in (3, 5)]
    attributes = [torch.randn(graph.num_edges, 2) for graph in graphs]
    states = [torch.randn(3, 4), 30 * torch.randn(5, 4)]
    flow = gd.Flow(F.MessagePassingField(mlp(10, 4)))
    batch = F.AttributedGraph(gd.Graph.batch(graphs), torch.cat(attributes))
    together = flow.solve(torch.cat(states), batch)
    for k, (graph, own, h) in enumerate(zip(graphs, attributes, states, strict=True)):
        alone = flow.solve(h, F.AttributedGraph(graph, own))
        assert together.stats.accepted[k] == alone.stats.accepted
        block = together.states[-1].split((3, 5))[k]
        torch.testing.assert_close(block, alone.states[-1], rtol=1e-9, atol=1e-11)


def test_relative_messages_ignore_a_shift():
    field = F.MessagePassingField(mlp(4, 4), relative=True, see_target=False)
    graph, h = weighted_graph(), torch.randn(6, 4)
    torch.testing.assert_close(field(0.0, h + 3.0, graph), field(0.0, h, graph))


@pytest.mark.usefixtures("without_type_checks")
def test_errors_name_the_remedy():
    graph, h = weighted_graph().normalize("sym"), torch.randn(6, 4)
    raises = pytest.raises
    with raises(ValueError, match=r"Unknown activation 'rleu'. Choose one of: elu"):
        F.AttentionField(4, activation="rleu")
    with raises(ValueError, match=r"but is \[4, 5\]. Use for example"):
        F.GraphConvField([4, 5])
    with raises(ValueError, match=r"states of 5 channels, but the state has 4"):
        F.GraphConvField([5, 5])(0.0, h, graph)
    with raises(ValueError, match=r"AttentionField moves states of 8 channels, but .* 4"):
        F.AttentionField(8)(0.0, h, graph)
    with raises(ValueError, match="heads` that divide `channels`"):
        F.AttentionField(4, heads=3)
    with raises(ValueError, match="Choose one of: gat, gatv2"):
        F.AttentionField(4, scores="dot")
    with raises(ValueError, match="Let its last layer have 4 channels"):
        F.MessagePassingField(mlp(8, 3))(0.0, h, graph)
    with raises(ValueError, match="one row for each edge"):
        F.MessagePassingField(mlp(10, 4))(0.0, h, F.AttributedGraph(graph, torch.randn(3, 2)))
    with raises(ValueError, match="Make it with `field.pack"):
        F.SecondOrder(springs)(0.0, torch.randn(6, 3), graph)
    with raises(ValueError, match="half of the state's"):
        F.SecondOrder(lambda t, x, g: x[..., :1])(0.0, h, graph)
    with raises(ValueError, match=r"nn.Linear\(4, 2\)"):
        F.Augmented(F.GraphConvField([6, 6]), 2, lift=nn.Linear(4, 3)).pack(h)
    with raises(ValueError, match="Choose one of: add, concat, source"):
        F.Controlled(springs, 4, how="mul")
    with raises(ValueError, match="4 of the state, the rest of the input"):
        F.Controlled(springs, 4)(0.0, h, graph)
    with raises(ValueError, match="use `TimeConcat`"):
        F.DepthVarying(nn.Tanh())
    with raises(ValueError, match="Choose one of: chebyshev, fourier, polynomial"):
        F.DepthVarying(F.GraphConvField([4, 4]), basis="bessel")
