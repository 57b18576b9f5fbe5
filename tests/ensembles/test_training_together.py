"""Fifty epochs together leave every member where its lone run is, and in float32 nearly so."""

import pytest
import torch
from torch import nn

import graphode as gd
from tests.ensembles.test_ensemble import CLASSES, SEEDS, STATIC, alone, problem
from tests.hybrid.loops import random_graph


def trained(model, loss_of, seeds, epochs=50):
    """Adam with the paper's L2 penalty, masks keyed by seed and epoch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for epoch in range(epochs):
        optimizer.zero_grad()
        with gd.stochastic(seeds, epoch):
            loss_of(model).sum().backward()
        optimizer.step()


def node_classification(name):
    """A model to build, and the loss of one or of all."""
    x, graph = problem()
    features, labels = gd.SparseFeatures(x), torch.arange(34) % CLASSES

    def loss_of(model):
        logits = model(features, graph)
        if logits.ndim == 2:
            return nn.functional.cross_entropy(logits, labels)
        return torch.stack([nn.functional.cross_entropy(part, labels) for part in logits])

    return STATIC[name], loss_of


def forecasting():
    """The same for irregular series."""
    times = (0.1 + torch.rand(2, 2)).cumsum(-1)
    x, queries, target = torch.randn(2, 2, 5, 2), times[:, -1:] + 0.3, torch.randn(2, 1, 5, 1)
    graph = random_graph(5)

    def loss_of(model):
        return (model(x, times, graph, queries) - target).square().mean((-1, -2, -3, -4))

    return lambda seed: gd.GCDEGRU(2, 6), loss_of


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=["f64", "f32"]
)
@pytest.mark.parametrize("name", ["GCN*", "GCDE-rk4", "GCDE-dpr5", "GCDE-GRU"])
def test_fifty_epochs_leave_a_member_where_its_lone_run_is(name, dtype, tolerance):
    torch.set_default_dtype(dtype)
    build, loss_of = forecasting() if name == "GCDE-GRU" else node_classification(name)
    ensemble = gd.Ensemble(build, SEEDS)
    trained(ensemble, loss_of, ensemble.seeds)
    for index, seed in enumerate(SEEDS):
        lone = alone(build, seed)
        start = {key: value.clone() for key, value in lone.named_parameters()}
        trained(lone, loss_of, seed)
        for key, parameter in ensemble.member(index).named_parameters():
            expected = lone.get_parameter(key)
            assert (parameter - expected).norm() <= tolerance * expected.norm(), key
            assert not torch.equal(expected, start[key]), f"{key} was not trained"
