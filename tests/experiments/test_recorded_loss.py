"""A recorded loss and its gradients are the eager ones, bit for bit but for tanh: NumPy's."""

import shutil

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import graphode as gd
from graphode.experiments.direct_calls import tanh
from graphode.experiments.multi_agent import MultiAgent
from graphode.experiments.multi_agent_run import halves, simulated
from graphode.experiments.one_step import one_step
from graphode.experiments.particle_models import builder
from graphode.experiments.recorded_loss import RecordedLoss, record
from graphode.experiments.trainer import Trainer, Training

MODELS = ("static", "neural_ode", "gde", "gde_ii", "gde_ii_literal", "gmde_ii", "pair_force")


class WithNumPysTanh(TorchDispatchMode):
    """Eager PyTorch, but for tanh."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = tanh if func is torch.ops.aten.tanh.default else func
        return found(*args, **(kwargs or {}))


def trained(model: str, program: str) -> list[torch.Tensor]:
    """Parameters after a few updates, with another batch in each."""
    config = MultiAgent.of(model, n=4, duration=1.0, dt=1 / 32, members=2, hidden=4, stride=3)
    states, _ = halves(simulated(config.system, config.system_seeds).states)
    ensemble = gd.Ensemble(builder(config), config.seeds)
    objective = one_step(states, config.dt, config.stride, program)
    trainer = Trainer(ensemble, objective, Training(epochs=5, lr=0.01))
    for _ in range(5):
        trainer.step()
    return [parameter.detach() for parameter in ensemble.parameters()]


@pytest.mark.parametrize("model", MODELS)
def test_training_by_a_recorded_loss_is_training(model):
    with WithNumPysTanh():
        expected = trained(model, "eager")
    for eager, recorded in zip(expected, trained(model, "recorded"), strict=True):
        assert torch.equal(eager, recorded)


def test_every_member_has_the_gradients_of_its_own_loss():
    ensemble = gd.Ensemble(lambda seed: nn.Linear(3, 2), range(4))

    def loss(ensemble, x):
        return ensemble(x, per_member=True).square().sum((1, 2))

    recorded = RecordedLoss(ensemble, loss, (torch.randn(4, 5, 3),))
    x = torch.randn(4, 5, 3)
    found, gradients = recorded(x)
    assert torch.equal(found, loss(ensemble, x))
    for member in range(4):
        parameters = list(ensemble.parameters())
        expected = torch.autograd.grad(loss(ensemble, x)[member], parameters)
        for a, b in zip(gradients, expected, strict=True):
            torch.testing.assert_close(a[member], b[member])


def test_a_recorded_loss_follows_its_parameters():
    ensemble = gd.Ensemble(lambda seed: nn.Linear(3, 2), range(2))
    x = torch.randn(2, 5, 3)
    recorded = RecordedLoss(ensemble, lambda e, x: e(x, per_member=True).sum((1, 2)), (x,))
    before, _ = recorded(x)
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter.mul_(2)
    torch.testing.assert_close(recorded(x)[0], 2 * before)


def test_a_flow_is_recorded_without_asking_for_values():
    flow = gd.Flow(gd.GraphConvField([4, 4]), solver="rk4", num_steps=2)
    graph = gd.DenseGraph(torch.ones(3, 3)).normalize("sym")
    flow.requires_grad_(False)
    program = record(lambda h: flow(h, graph, 0.0, 0.5), torch.zeros(3, 4))
    h = torch.randn(3, 4)
    torch.testing.assert_close(program(h), flow(h, graph, 0.0, 0.5))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, by torch
@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_a_compiled_program_says_nearly_the_same():
    flow = gd.Flow(gd.GraphConvField([4, 4]), solver="rk4", num_steps=2).requires_grad_(False)
    graph = gd.DenseGraph(torch.ones(3, 3)).normalize("sym")
    program = record(lambda h: flow(h, graph, 0.0, 0.5), torch.zeros(3, 4), compiled=True)
    h = torch.randn(3, 4)
    torch.testing.assert_close(program(h), flow(h, graph, 0.0, 0.5))
