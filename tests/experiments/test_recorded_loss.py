"""A recorded loss is the loss, bit for bit, and so are its gradients."""

import pytest
import torch
from torch import nn

import graphode as gd
from graphode.experiments.multi_agent import MultiAgent
from graphode.experiments.multi_agent_run import OneStep, halves, simulated
from graphode.experiments.particle_models import builder
from graphode.experiments.recorded_loss import RecordedLoss, record
from graphode.experiments.training import Trainer, Training

MODELS = ("static", "neural_ode", "gde", "gde_ii", "gde_ii_literal", "pair_force")


def trained(model: str, program: str) -> list[torch.Tensor]:
    """Parameters after a few updates, with another batch in each."""
    config = MultiAgent.of(model, n=4, duration=1.0, dt=1 / 32, members=2, hidden=4, stride=3)
    states, _ = halves(simulated(config.system, config.system_seeds).states)
    ensemble = gd.Ensemble(builder(config), config.seeds)
    objective = OneStep(states, config.dt, config.stride, program)
    trainer = Trainer(ensemble, objective, Training(epochs=5, lr=0.01))
    for _ in range(5):
        trainer.step()
    return [parameter.detach() for parameter in ensemble.parameters()]


@pytest.mark.parametrize("model", MODELS)
def test_training_by_a_recorded_loss_is_training(model):
    for eager, recorded in zip(trained(model, "eager"), trained(model, "recorded"), strict=True):
        assert torch.equal(eager, recorded)


def test_gradients_are_weighted_by_member():
    ensemble = gd.Ensemble(lambda seed: nn.Linear(3, 2), range(4))

    def loss(ensemble, x):
        return ensemble(x, per_member=True).square().sum((1, 2))

    x = torch.randn(4, 5, 3)
    recorded, weights = RecordedLoss(ensemble, loss, (x,)), torch.arange(4.0)
    other = torch.randn(4, 5, 3)
    parameters = list(ensemble.parameters())
    expected = torch.autograd.grad((weights * loss(ensemble, other)).sum(), parameters)
    found = torch.autograd.grad((weights * recorded(other)).sum(), parameters)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_a_recorded_loss_follows_its_parameters():
    ensemble = gd.Ensemble(lambda seed: nn.Linear(3, 2), range(2))
    x = torch.randn(2, 5, 3)
    recorded = RecordedLoss(ensemble, lambda e, x: e(x, per_member=True).sum((1, 2)), (x,))
    before = recorded(x).detach()
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter.mul_(2)
    torch.testing.assert_close(recorded(x).detach(), 2 * before)


def test_a_flow_is_recorded_without_asking_for_values():
    flow = gd.Flow(gd.GraphConvField([4, 4]), solver="rk4", num_steps=2)
    graph = gd.DenseGraph(torch.ones(3, 3)).normalize("sym")
    flow.requires_grad_(False)
    program = record(lambda h: flow(h, graph, 0.0, 0.5), torch.zeros(3, 4))
    h = torch.randn(3, 4)
    torch.testing.assert_close(program(h), flow(h, graph, 0.0, 0.5))
