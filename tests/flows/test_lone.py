"""A flow of one sample, which keeps its books in floats, is a flow of many samples."""

import pytest
import torch
from torch import Tensor

import graphode as gd
from graphode.flows import StepControl
from tests.problems import relaxation

ADAPTIVE = ["bosh3", "dopri5", "tsit5", "dopri8"]


def alone_and_beside_another(flow: gd.Flow, h: Tensor, rate: float, t0: float, t1: float):
    """End and stats of a sample, as one of one and as one of two."""
    found = []
    for batch in (h[None], torch.stack([h, 2 * h])):
        with gd.record_stats() as stats:
            end = flow(batch, torch.tensor(rate), t0, t1)[0]
        cost = stats[0]
        assert cost.status is not None
        parts = (cost.evaluations, cost.accepted, cost.rejected, cost.status)
        found.append((end, [part[0].item() for part in parts]))
    return found


@pytest.mark.parametrize("solver", ADAPTIVE)
@pytest.mark.parametrize(("rate", "t1"), [(1.0, 2.0), (3.0, -0.5), (200.0, 1.0), (0.0, 1.0)])
def test_one_sample_is_solved_as_beside_another(solver: str, rate: float, t1: float):
    flow = gd.Flow(relaxation, solver=solver, rtol=1e-6, atol=1e-8)
    (alone, cost), (beside, cost_beside) = alone_and_beside_another(
        flow, torch.randn(4, 3), rate, 0.0, t1
    )
    assert cost == cost_beside
    torch.testing.assert_close(alone, beside, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    "control",
    [
        StepControl(proportional=0.4, integral=0.3, derivative=0.1, max_factor=3.0),
        StepControl(may_shrink=False),
    ],
)
def test_one_sample_follows_every_kind_of_step_control(control):
    flow = gd.Flow(relaxation, control=control)
    (alone, cost), (beside, cost_beside) = alone_and_beside_another(
        flow, torch.randn(4, 3), 40.0, 0.0, 1.0
    )
    assert cost == cost_beside
    torch.testing.assert_close(alone, beside, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        (relaxation, {"max_steps": 5}),
        (relaxation, {"min_step": 0.1}),
        (lambda t, h, rate: rate * h**2, {}),
        (lambda t, h, rate: torch.where(t > 0.3, torch.nan, rate * h), {}),
    ],
    ids=["max_steps", "min_step", "blow-up", "non-finite"],
)
def test_one_sample_gives_up_where_it_would_beside_another(field, options):
    flow = gd.Flow(field, rtol=1e-8, atol=1e-10, on_failure="status", **options)
    (_, cost), (_, cost_beside) = alone_and_beside_another(flow, torch.ones(2, 2), 50.0, 0.0, 1.0)
    assert cost == cost_beside
    assert cost[-1] != gd.Status.SUCCESS
    with pytest.raises(gd.SolveError, match=r"Raise `max_steps`|may blow up|returned NaN"):
        gd.Flow(field, rtol=1e-8, atol=1e-10, **options)(torch.ones(1, 2, 2), torch.tensor(50.0))


def test_gradients_of_one_sample_are_those_beside_another():
    h, rate = torch.randn(4, 3), torch.tensor(5.0, requires_grad=True)
    flow = gd.Flow(relaxation, rtol=1e-6, atol=1e-8)
    start = h[None].clone().requires_grad_()
    alone = torch.autograd.grad(flow(start, rate)[0].square().sum(), [start, rate])
    pair = torch.stack([h, 2 * h]).requires_grad_()
    beside = torch.autograd.grad(flow(pair, rate)[0].square().sum(), [pair, rate])
    torch.testing.assert_close(alone[0][0], beside[0][0], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(alone[1], beside[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("field", "t0"),
    [
        (lambda t, h, rate: rate * torch.ones_like(h), 0.0),
        (lambda t, h, rate: t * torch.ones_like(h), 1e-100),
        (lambda t, h, rate: torch.zeros_like(h), 0.0),
    ],
    ids=["constant", "nearly still at first", "still"],
)
@pytest.mark.parametrize("solver", ["dopri5", "dopri8"])
def test_the_first_step_of_one_sample_is_that_beside_another(field, t0: float, solver: str):
    flow = gd.Flow(field, solver=solver, rtol=1e-6, atol=1e-8)
    (alone, cost), (beside, cost_beside) = alone_and_beside_another(
        flow, torch.zeros(3, 2), 50.0, t0, 1.0
    )
    assert cost == cost_beside
    torch.testing.assert_close(alone, beside, rtol=1e-11, atol=1e-13)
