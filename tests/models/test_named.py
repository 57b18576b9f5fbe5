"""The named models are what the paper says they are."""

import pytest
import torch
from torch import nn

import graphode as gd
from graphode import models as M
from graphode.fields import AttentionField
from graphode.graphs import Graph
from graphode.models.gat import AttentionLayer
from tests.models.registry import random_graph


def normalised() -> Graph:
    return random_graph().normalize("sym")


def test_gcde_is_the_papers_architecture():
    model = M.GCDE(1433, 64, 7)
    assert model.encoder.weight.shape == (1433, 64)
    assert model.encoder.dropout.rate == 0.6
    field = model.flow.field
    assert field.widths == (64, 64, 64)
    assert [dropout.rate for dropout in field.dropouts] == [0.9, 0.9]
    assert model.readout.weight.shape == (64, 7)
    assert model.readout.dropout.rate == 0
    assert model.flow.options.num_steps == 1
    for parameter in model.parameters():
        assert parameter.abs().max() <= parameter.shape[-1] ** -0.5


@pytest.mark.parametrize(("build", "evaluations"), [(M.GCDE.rk2, 2), (M.GCDE.rk4, 4), (M.GCDE, 4)])
def test_evaluations_are_those_of_the_table(build, evaluations: int):
    model = build(5, 4, 3).eval()
    solution = model.solve(torch.randn(6, 5), normalised(), dense=False)
    assert int(solution.stats.evaluations) == evaluations


def test_dpr5_has_one_layer_and_adapts():
    model = M.GCDE.dpr5(5, 4, 3)
    assert model.flow.field.widths == (4, 4)
    assert model.flow.options.num_steps is None
    assert (model.flow.options.rtol, model.flow.options.atol) == (1e-3, 1e-4)
    assert M.GCDE.dpr5(5, 4, 3, layers=2, rtol=1e-6).flow.options.rtol == 1e-6
    # Masks stay within a solve: the field is a function, and the solver does not labour.
    with gd.stochastic(0):
        assert int(model.solve(torch.randn(6, 5), normalised()).stats.evaluations) < 60


def test_one_euler_step_of_a_gcde_is_its_residual_gcn():
    ode = M.GCDE(5, 4, 3, solver="euler").eval()
    network = M.GCN.star(5, 4, 3, layers=4, residual=True).eval()
    names = {name.replace("flow.field", "hidden"): p for name, p in ode.state_dict().items()}
    network.load_state_dict(names)
    graph, x = normalised(), torch.randn(6, 5)
    torch.testing.assert_close(network(x, graph), ode(x, graph))
    network.residual = False
    h = ode.encode(x, graph)
    once = ode.readout(ode.flow.field(0.0, h, graph), graph)
    torch.testing.assert_close(network(x, graph), once)


@pytest.mark.parametrize("layers", [2, 3, 4, 5, 6])
def test_gcn_has_the_layers_it_says(layers: int):
    model = M.GCN.star(5, 4, 3, layers=layers)
    convolutions = [m for m in model.modules() if isinstance(m, gd.GraphConvolution)]
    assert len(convolutions) == layers
    assert model(torch.randn(6, 5), normalised()).shape == (6, 3)


def test_a_gcn_of_two_layers_is_that_of_kipf_and_welling():
    model, graph, x = M.GCN(5, 4, 3).eval(), normalised(), torch.randn(6, 5)
    matrix = graph.to_dense()
    first, last = model.encoder, model.readout
    h = torch.relu(matrix @ x @ first.weight + first.bias)
    torch.testing.assert_close(model(x, graph), matrix @ h @ last.weight + last.bias)


@pytest.mark.parametrize("concat", [True, False])
def test_an_attention_layer_is_pygs(concat: bool):
    from torch_geometric.nn import GATConv

    layer = AttentionLayer(5, 4, heads=2, activation=None, concat=concat).eval()
    theirs = GATConv(5, 2 if concat else 4, heads=2, concat=concat)
    with torch.no_grad():
        theirs.lin.weight.copy_(layer.linear.weight.t())
        theirs.att_src.copy_(layer.source_attention[None])
        theirs.att_dst.copy_(layer.target_attention[None])
        theirs.bias.copy_(layer.bias)
    graph, h = random_graph(), torch.randn(6, 5)
    expected = theirs(h, graph.edge_index)
    torch.testing.assert_close(layer(h, graph.normalize("sym")), expected)


def test_an_attention_layer_between_equal_widths_is_a_step_of_gade():
    layer, field = AttentionLayer(4, 4, heads=2).eval(), AttentionField(4, heads=2)
    with torch.no_grad():
        field.source.weight.copy_(layer.linear.weight.t())
        for name in ("source_attention", "target_attention", "bias"):
            getattr(field, name).copy_(getattr(layer, name))
    h = torch.randn(2, 6, 4)
    torch.testing.assert_close(layer(h, normalised()), field(0.0, h, normalised()))


def test_samples_of_a_batch_share_the_masks_of_attention():
    layer, x = AttentionLayer(5, 4, heads=2), torch.randn(6, 5)
    with gd.stochastic(1):
        together = layer(x.expand(3, 6, 5), normalised())
        alone = layer(x, normalised())
    for sample in together:
        torch.testing.assert_close(sample, alone)


def test_the_papers_multi_agent_baselines_have_its_widths():
    static = M.MLP(4, 80, 4, layers=3, nodes=10)
    ode = M.NeuralODE(None, 4, None, hidden_channels=80, nodes=10)
    for model in (static, ode):
        shapes = [tuple(p.shape) for name, p in model.named_parameters() if "weight" in name]
        assert shapes == [(40, 80), (80, 80), (80, 40)]
        x = torch.randn(2, 10, 4)
        together = model(x, None)
        assert together.shape == x.shape
        torch.testing.assert_close(together[1], model(x[1], None))


def test_a_flat_mlp_sees_other_nodes_and_a_plain_one_does_not():
    for nodes in (None, 3):
        model = M.MLP(2, 8, 2, nodes=nodes, activation="tanh")
        jacobian = torch.autograd.functional.jacobian(model, torch.randn(3, 2))
        assert bool(jacobian[0, :, 1, :].any()) == (nodes is not None)


def test_gradient_methods_agree_in_training():
    graph, x = normalised(), torch.randn(6, 5)
    found = []
    for gradient in ("backprop", "checkpoint"):
        torch.manual_seed(0)
        model = M.GCDE(5, 4, 3, gradient=gradient, field_dropout=0.5, num_steps=2)
        with gd.stochastic(5, 1):
            model(x, graph).square().sum().backward()
        found.append([parameter.grad for parameter in model.parameters()])
    for exact, recomputed in zip(*found, strict=True):
        torch.testing.assert_close(recomputed, exact)


def test_redrawn_masks_are_refused_where_they_harm():
    model = M.GCDE.dpr5(5, 4, 3, redraw="per_eval")
    with pytest.raises(ValueError, match=r"draws its masks per_eval, but an adaptive solver"):
        model(torch.randn(6, 5), normalised())
    forced = M.GCDE.dpr5(5, 4, 3, redraw="per_eval", force=True, field_dropout=0.2)
    assert forced(torch.randn(6, 5), normalised()).isfinite().all()


def test_nodes_are_silenced_whole_and_keep_the_mean():
    model = M.MLP(5, 4, 3, node_dropout=0.25)
    x = torch.randn(2, 8000, 5)
    with gd.stochastic(1, 2):
        dropped = model(x)
    kept = dropped[0].abs().sum(-1) > 0
    assert abs(kept.double().mean() - 0.75) < 0.02
    torch.testing.assert_close(dropped[:, kept], model.eval()(x)[:, kept] / 0.75)
    assert torch.equal(dropped[:, ~kept], torch.zeros_like(dropped[:, ~kept]))


def test_errors_name_the_remedy():
    with pytest.raises(ValueError, match=r"`layers` must be 1 or more, but is 0. The paper's fi"):
        M.GCDE(5, 4, 3, layers=0)
    with pytest.raises(ValueError, match=r"2 or more, but is 1. For a single one use"):
        M.GCN(5, 4, 3, layers=1)
    with pytest.raises(ValueError, match=r"`layers` must be 1 or more, but is 0. GAT has 2"):
        M.GAT(5, 4, 3, layers=0)
    with pytest.raises(ValueError, match=r"8 heads side by side cannot fill 4 channels. Choose"):
        M.GAT(5, 4, 3)
    with pytest.raises(ValueError, match=r"`layers` must be 1 or more, but is 0. One layer is"):
        M.MLP(5, 4, 3, layers=0)
    with pytest.raises(ValueError, match=r"one for each of the 2 layers, but there are 3. Give"):
        M.MLP(5, 4, 3, dropout=[0.5, 0.5, 0.5])
    with pytest.raises(ValueError, match=r"all nodes at once, \[..., 3, 5\], but .* \[6, 5\]. Bui"):
        M.MLP(5, 4, 3, nodes=3)(torch.randn(6, 5))
    with pytest.raises(ValueError, match=r"Unknown solver 'rk5'"):
        M.GCDE(5, 4, 3, solver="rk5")
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'depth'"):
        M.GCDE(5, 4, 3, depth=2)


def test_a_model_is_an_ordinary_module():
    model = M.GCDE(5, 4, 3)
    again = M.GCDE(5, 4, 3)
    again.load_state_dict(model.state_dict())
    graph, x = normalised(), torch.randn(6, 5)
    assert torch.equal(model.eval()(x, graph), again.eval()(x, graph))
    assert isinstance(model, nn.Module)
    assert "rk4_38" in repr(model)
