"""A GDE is its parts, in order."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import graphode as gd
from graphode import models as M
from graphode.fields.graphless import Graphless, with_graph
from tests.models.registry import random_graph


def parts() -> tuple[M.GraphConvEncoder, gd.Flow, M.GraphConvReadout]:
    flow = gd.Flow(gd.GraphConvField([4, 6, 4]), solver="dopri5")
    return M.GraphConvEncoder(5, 4), flow, M.GraphConvReadout(4, 3)


def test_a_gde_is_encoder_flow_readout():
    encoder, flow, readout = parts()
    graph, x = random_graph().normalize("sym"), torch.randn(2, 6, 5)
    model = M.GDE(encoder=encoder, flow=flow, readout=readout, t0=0.5, t1=2.0).eval()
    by_hand = readout(flow(encoder(x, graph), graph, 0.5, 2.0), graph)
    torch.testing.assert_close(model(x, graph), by_hand)
    matrix = graph.to_dense()
    start = torch.relu(matrix @ (x @ encoder.weight) + encoder.bias)
    torch.testing.assert_close(model.encode(x, graph), start)


def test_without_depth_it_is_readout_of_encoder():
    encoder, flow, readout = parts()
    graph, x = random_graph().normalize("sym"), torch.randn(6, 5)
    model = M.GDE(encoder=encoder, flow=flow, readout=readout, t0=1.0, t1=1.0).eval()
    assert torch.equal(model(x, graph), readout(encoder(x, graph), graph))


def test_each_sample_has_its_own_depth():
    encoder, flow, readout = parts()
    graph, x = random_graph().normalize("sym"), torch.randn(2, 6, 5)
    depths = torch.tensor([0.5, 3.0])
    model = M.GDE(encoder=encoder, flow=flow, readout=readout, t1=depths).eval()
    for k in range(2):
        alone = M.GDE(encoder=encoder, flow=flow, readout=readout, t1=float(depths[k])).eval()
        torch.testing.assert_close(model(x, graph)[k], alone(x[k], graph))


def test_without_encoder_and_readout_it_is_its_flow():
    _, flow, _ = parts()
    graph, h = random_graph().normalize("sym"), torch.randn(6, 4)
    assert torch.equal(M.GDE(flow=flow).eval()(h, graph), flow(h, graph))


def test_solve_gives_the_path_of_the_embedding():
    encoder, flow, readout = parts()
    graph, x = random_graph().normalize("sym"), torch.randn(6, 5)
    model = M.GDE(encoder=encoder, flow=flow, readout=readout).eval()
    solution = model.solve(x, graph, torch.linspace(0, 1, 5))
    assert solution.states.shape == (5, 6, 4)
    torch.testing.assert_close(solution.states[0], encoder(x, graph))
    torch.testing.assert_close(readout(solution.states[-1], graph), model(x, graph))
    assert solution.stats.evaluations > 0
    torch.testing.assert_close(model.solve(x, graph).states[-1], solution.states[-1])


def test_solve_reaches_from_a_learnable_or_own_start_to_such_an_end():
    _, flow, _ = parts()
    graph, h = random_graph().normalize("sym"), torch.randn(2, 6, 4)
    depth = nn.Parameter(torch.tensor(1.5))
    learnable = M.GDE(flow=flow, t1=depth).eval()
    end = learnable.solve(h, graph).states[-1]
    torch.testing.assert_close(end, learnable(h, graph))
    (found,) = torch.autograd.grad(end.sum(), depth, retain_graph=True)
    (expected,) = torch.autograd.grad(learnable(h, graph).sum(), depth)
    torch.testing.assert_close(found, expected)
    starts, depths = torch.tensor([0.5, -1.0]), torch.tensor([1.0, 2.0])
    for t0 in (0.1, starts, nn.Parameter(torch.tensor(0.2))):
        own = M.GDE(flow=flow, t0=t0, t1=depths).eval()
        torch.testing.assert_close(own.solve(h, graph).states[-1], own(h, graph))


def test_a_field_that_carries_more_is_packed_and_unpacked():
    field = gd.Augmented(gd.Controlled(gd.GraphConvField([6, 6]), 6), 2)
    flow = gd.Flow(field, solver="rk4", num_steps=2)
    graph, x = random_graph().normalize("sym"), torch.randn(6, 4)
    by_hand = gd.unpack(field, flow(gd.pack(field, x), graph))
    torch.testing.assert_close(M.GDE(flow=flow)(x, graph), by_hand)


def test_a_linear_encoder_is_wrapped():
    linear = nn.Linear(5, 4)
    _, flow, _ = parts()
    graph, x = random_graph().normalize("sym"), torch.randn(6, 5)
    model = M.GDE(encoder=linear, flow=flow, readout=lambda h: h.sum(-1)).eval()
    torch.testing.assert_close(model(x, graph), flow(linear(x), graph).sum(-1))
    assert linear.weight in set(model.parameters())


@pytest.mark.parametrize(
    "module",
    [nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Tanh()), nn.Identity(), torch.tanh,
     functional.relu, functional.softmax, lambda h: h, lambda h, scale=2.0: h * scale],
)  # fmt: skip
def test_modules_of_one_tensor_are_wrapped(module: nn.Module):
    assert isinstance(with_graph(module, "encoder"), Graphless)


@pytest.mark.parametrize(
    "module",
    [gd.GraphConvolution(2, 2), M.GlobalPool(), M.MLP(2, 2, 2), M.LinearEncoder(2, 2),
     lambda h, graph: h, lambda h, graph=None: h, lambda h, g: h, lambda *args: args[0]],
)  # fmt: skip
def test_modules_that_take_a_graph_receive_it(module: nn.Module):
    assert with_graph(module, "encoder") is module


def test_a_flow_may_be_any_function_of_four():
    def decay(h: torch.Tensor, graph: object, t0: float, t1: float) -> torch.Tensor:
        return h * torch.exp(torch.tensor(t0 - t1))

    h = torch.randn(6, 4)
    model = M.GDE(flow=decay, t1=2.0)
    torch.testing.assert_close(model(h, None), h * torch.exp(torch.tensor(-2.0)))
    with pytest.raises(TypeError, match=r"needs a `graphode.Flow` inside .* Call the model"):
        model.solve(h, None)


def test_errors_name_the_remedy(without_type_checks: None):
    from torch_geometric.nn import GCNConv

    flow = parts()[1]
    with pytest.raises(TypeError, match=r"`flow` must be a `graphode.Flow`.*becomes a flow by"):
        M.GDE(flow=gd.GraphConvField([4, 4]))
    with pytest.raises(TypeError, match=r"`flow` must be"):
        M.GDE(flow="dopri5")
    with pytest.raises(TypeError, match=r"`encoder` must be a module, .* but is 3. Pass for"):
        M.GDE(encoder=3, flow=flow)
    with pytest.raises(TypeError, match=r"GCNConv takes an `edge_index`. Wrap it: `lambda h, gr"):
        M.GDE(encoder=GCNConv(2, 2), flow=flow)
    with pytest.raises(TypeError, match=r"takes \(x, edge_index, .* `graphode.ConvField\(layer"):
        M.GDE(flow=gd.Flow(GCNConv(2, 2)))
    assert M.GDE(flow=gd.Flow(lambda t, h, edge_index: h))(torch.zeros(2, 2), None).shape == (2, 2)
    with pytest.raises(TypeError, match=r"`readout` must take .* takes \(a, b, c\). Wrap it"):
        M.GDE(flow=flow, readout=lambda a, b, c: a)
    wrapped = M.GDE(encoder=nn.Linear(5, 4), flow=flow)
    with pytest.raises(TypeError, match=r"Linear takes a dense tensor, but SparseFeatures came"):
        wrapped(M.SparseFeatures(torch.eye(5)), random_graph(5))


def test_named_graphs_of_a_batch_have_the_masks_they_have_alone_before_and_after_the_flow():
    """Their nodes lie in a row, of which encoder and readout see no more than its length."""
    graphs = [random_graph(nodes, nodes).normalize("sym") for nodes in (4, 7, 4)]
    model = gd.GDE(
        encoder=nn.Sequential(gd.Dropout(0.5), nn.Linear(3, 5)),
        flow=gd.Flow(gd.GraphConvField([5, 5], dropout=0.5), solver="rk4", num_steps=1),
        readout=nn.Sequential(gd.Dropout(0.5), nn.Linear(5, 2)),
    )
    parts, names = [torch.randn(graph.num_nodes, 3) for graph in graphs], [7, 2, 9]
    with gd.stochastic(0, 1, sample=torch.tensor(names)):
        together = model(torch.cat(parts), gd.Graph.batch(graphs))
    alone = []
    for name, x, graph in zip(names, parts, graphs, strict=True):
        with gd.stochastic(0, 1, sample=torch.tensor([name, 5])):
            alone.append(model(torch.stack([x, x]), graph)[0])
    torch.testing.assert_close(together, torch.cat(alone))
