"""Laws that every model obeys."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import graphode as gd
from graphode import models as M
from graphode.data import karate_club, karate_club_factions
from graphode.graphs import Graph
from tests.models.registry import IN, MODELS, OUT, TAKES_SPARSE, bag_of_words, random_graph

Build = Callable[[], nn.Module]
every_model = pytest.mark.parametrize("build", MODELS.values(), ids=MODELS.keys())
every_sparse_model = pytest.mark.parametrize("name", TAKES_SPARSE)


def normalised(nodes: int = 6, seed: int = 0) -> Graph:
    return random_graph(nodes, seed).normalize("sym")


@every_model
def test_relabelling_nodes_relabels_the_prediction(build: Build):
    model, order = build().eval(), torch.randperm(6)
    graph, x = random_graph(), torch.randn(2, 6, IN)
    moved = Graph(order.argsort()[graph.edge_index], 6, graph.edge_weight).normalize("sym")
    expected = model(x, graph.normalize("sym"))[:, order]
    torch.testing.assert_close(model(x[:, order], moved), expected)


@every_model
def test_batched_states_equal_one_by_one(build: Build):
    model, graph, x = build().eval(), normalised(), torch.randn(2, 3, 6, IN)
    together = model(x, graph)
    assert together.shape == (2, 3, 6, OUT)
    torch.testing.assert_close(together[1, 2], model(x[1, 2], graph))


@every_model
def test_batched_graphs_equal_one_by_one(build: Build):
    model = build().eval()
    stacked = [normalised(5, seed) for seed in range(3)]
    x = torch.randn(3, 5, IN)
    together = model(x, Graph.batch(stacked))
    for k, graph in enumerate(stacked):
        torch.testing.assert_close(together[k], model(x[k], graph))
    if model_is_adaptive(model):
        return  # the nodes of a ragged batch are one system to the solver: not exactly equal
    ragged = [normalised(n, n) for n in (3, 6, 4)]
    parts = [torch.randn(graph.num_nodes, IN) for graph in ragged]
    separately = [model(x, graph) for x, graph in zip(parts, ragged, strict=True)]
    together = model(torch.cat(parts), Graph.batch(ragged))
    torch.testing.assert_close(together, torch.cat(separately))


def model_is_adaptive(model: nn.Module) -> bool:
    return isinstance(model, M.GDE) and model.flow.options.num_steps is None


@every_model
def test_gradients_reach_every_parameter(build: Build):
    model, graph = build().eval(), normalised()
    x = torch.randn(6, IN, requires_grad=True)
    model(x, graph).square().sum().backward()
    assert x.grad is not None
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


@every_sparse_model
def test_sparse_equals_dense(name: str):
    model, graph, x = MODELS[name]().eval(), normalised(), bag_of_words()
    sparse = M.SparseFeatures(x)
    torch.testing.assert_close(model(sparse, graph), model(x, graph))
    weight = next(model.parameters())
    gradients = [
        torch.autograd.grad(model(features, graph).square().sum(), weight)[0]
        for features in (sparse, x)
    ]
    torch.testing.assert_close(*gradients)


@every_sparse_model
def test_the_same_key_gives_the_same_masks(name: str):
    model, graph, x = MODELS[name](), normalised(), bag_of_words()
    for features in (x, M.SparseFeatures(x)):
        with gd.stochastic(3, 7):
            first = model(features, graph)
        with gd.stochastic(3, 7):
            assert torch.equal(first, model(features, graph))
        steps = []
        for step in range(8, 14):
            with gd.stochastic(3, step):
                steps.append(model(features, graph))
        if name not in ("NeuralODE",):  # which has no dropout by default
            assert any(not torch.equal(first, other) for other in steps)


@every_model
def test_autocast_rounds_the_prediction(build: Build):
    model, x = build().float().eval(), torch.randn(6, IN, dtype=torch.float32)
    graph = normalised().to(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = model(x, graph).float()
    rounded.sum().backward()
    exact = model(x, graph)
    assert (rounded - exact).norm() < 0.05 * exact.norm()


@every_model
def test_evaluation_is_deterministic(build: Build):
    model, graph, x = build().eval(), normalised(), torch.randn(6, IN)
    with gd.stochastic(1):
        first = model(x, graph)
    assert torch.equal(first, model(x, graph))


@every_model
def test_masks_are_keyed_by_path(build: Build):
    paths = {
        path: module.path
        for path, module in build().named_modules()
        if isinstance(module, gd.Stochastic)
    }
    assert all(path == given for path, given in paths.items())


@every_model
def test_a_node_alone_has_a_prediction(build: Build):
    model = build().eval()
    graph = Graph(torch.empty(2, 0, dtype=torch.int64), 1).normalize("sym")
    predicted = model(torch.randn(1, IN), graph)
    assert predicted.shape == (1, OUT)
    assert predicted.isfinite().all()


def labelled_loss(model: nn.Module, x: Tensor | M.SparseFeatures, graph: Graph) -> Tensor:
    """Cross-entropy of the two leaders of the karate club."""
    leaders = [0, 33]
    return functional.cross_entropy(model(x, graph)[leaders], karate_club_factions()[leaders])


@every_sparse_model
def test_training_steps_lower_the_loss(name: str):
    graph, x = karate_club().normalize("sym"), torch.randn(34, IN)
    model = MODELS[name]()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    before = labelled_loss(model.eval(), x, graph).item()
    model.train()
    for step in range(15):
        with gd.stochastic(0, step):
            loss = labelled_loss(model, x, graph)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert labelled_loss(model.eval(), x, graph).item() < before


def test_gcde_learns_the_karate_club_from_its_leaders():
    graph, factions = karate_club().normalize("sym"), karate_club_factions()
    x = M.SparseFeatures(torch.eye(34))
    model = M.GCDE(34, 16, 2, input_dropout=0.3, field_dropout=0.3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(60):
        with gd.stochastic(0, step):
            loss = labelled_loss(model, x, graph)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    predicted = model.eval()(x, graph).argmax(-1)
    assert predicted[[0, 33]].tolist() == factions[[0, 33]].tolist()
    assert (predicted == factions).double().mean() > 0.8
