"""A sample of a batch is solved as if it were alone: its states, its steps, its cost, its end."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import graphode as gd
from graphode.flows.adaptive import AdaptiveSolve
from tests.problems import heat, relaxation

ADAPTIVE = ["bosh3", "dopri5", "tsit5", "dopri8"]


def assert_each_sample_as_if_alone(
    y0: Tensor, times: Tensor, rates: Tensor, exactly: bool = True, **options: object
) -> None:
    """Compare a batch with the solves of its samples."""
    batch = gd.solve(relaxation, y0, times, (rates[:, None],), batch_dims=1, **options)
    for i in range(len(y0)):
        own = times if times.ndim == 1 else times[i]
        alone = gd.solve(relaxation, y0[i], own, (rates[i],), **options)
        torch.testing.assert_close(batch.states[:, i], alone.states, rtol=1e-10, atol=1e-12)
        assert batch.end_times[i] == alone.end_times
        assert batch.status[i] == alone.status
        if exactly:
            assert batch.stats.accepted[i] == alone.stats.accepted
            assert batch.stats.rejected[i] == alone.stats.rejected
            assert batch.stats.evaluations[i] == alone.stats.evaluations


@st.composite
def batches(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """States, times in either direction, and rates over three decades."""
    size, count = draw(st.integers(1, 5)), draw(st.integers(2, 5))
    start = draw(st.lists(st.floats(-5, 5), min_size=size, max_size=size))
    span = draw(st.lists(st.floats(0.01, 2), min_size=size, max_size=size))
    sign = draw(st.lists(st.sampled_from([-1, 1]), min_size=size, max_size=size))
    rate = draw(st.lists(st.floats(-1, 2), min_size=size, max_size=size))
    torch.manual_seed(draw(st.integers(0, 100)))
    cuts = torch.rand(size, count - 1).add_(0.01).cumsum(-1)
    cuts = torch.cat([torch.zeros(size, 1), cuts / cuts[:, -1:]], -1)
    # Backwards in time a stiff field explodes: its span is kept to a few time constants.
    rates = 10.0 ** torch.tensor(rate)
    spans = torch.tensor(span)
    direction = torch.tensor(sign)
    spans = torch.where(direction < 0, torch.minimum(spans, 2 / rates), spans)
    times = torch.tensor(start)[:, None] + (direction * spans)[:, None] * cuts
    return torch.randn(size, 3), times, rates


@settings(max_examples=20)
@given(batches(), st.sampled_from(ADAPTIVE))
def test_sample_of_a_batch_is_solved_as_if_alone(batch: tuple[Tensor, Tensor, Tensor], solver: str):
    y0, times, rates = batch
    assert_each_sample_as_if_alone(y0, times, rates, solver=solver)


@settings(max_examples=12)
@given(batches(), st.sampled_from(["euler", "heun", "rk4", "rk4_38", "adams", "bosh3", "dopri8"]))
def test_sample_of_a_batch_takes_its_own_fixed_steps(
    batch: tuple[Tensor, Tensor, Tensor], solver: str
):
    y0, times, rates = batch
    # Whether an output needs the derivative at a step's end differs from sample to sample.
    assert_each_sample_as_if_alone(
        y0, times, rates.clamp(max=5.0), exactly=False, solver=solver, num_steps=12
    )


@pytest.mark.parametrize(
    "solver", ["euler", "rk4", "adams", "dopri8", "implicit_euler", "trapezoid", "collocation"]
)
@pytest.mark.parametrize("dense", [True, False])
def test_sample_of_a_batch_takes_its_own_steps_of_a_given_size(solver: str, dense: bool):
    y0, rates = torch.randn(4, 3), torch.tensor([1.0, 2.0, 0.5, 3.0])
    times = torch.tensor([[0.0, 0.3, 1.0], [0.0, 2.0, 3.0], [1.0, 0.9, 0.2], [0.0, 0.1, 0.2]])
    options = {"solver": solver, "step_size": 0.25, "dense": dense}
    # How many evaluations an implicit equation takes is decided by the slowest of the batch.
    assert_each_sample_as_if_alone(y0, times, rates, exactly=False, **options)
    batch = gd.solve(relaxation, y0, times, (rates[:, None],), batch_dims=1, **options)
    assert batch.stats.accepted.tolist() == [4, 12, 4, 1]
    read = batch.at(times[:, 1])
    for i in range(4):
        alone = gd.solve(relaxation, y0[i], times[i], (rates[i],), **options)
        tolerance = 1e-9 if dense else 0.2  # as coarse as the steps, taken once more
        torch.testing.assert_close(read[i], alone.at(times[i, 1]), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
def test_steps_of_a_given_size_leave_gradients_to_each_sample(gradient: str):
    flow = gd.Flow(
        lambda t, h, graph: torch.sin(4 * t) * h, solver="rk4", step_size=0.1, gradient=gradient
    )
    h = torch.randn(3, 2, 1, requires_grad=True)
    t1 = torch.tensor([1.0, 0.0, -2.3], requires_grad=True)
    together = flow(h, None, 0.0, t1)
    found = torch.autograd.grad(together.square().sum(), (h, t1))
    alone = torch.stack([flow(h[i], None, 0.0, t1[i]) for i in range(3)])
    torch.testing.assert_close(together, alone, rtol=1e-13, atol=1e-13)
    tolerance = 1e-5 if gradient == "adjoint" else 1e-12
    expected = torch.autograd.grad(alone.square().sum(), (h, t1))
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_steps_of_a_given_size_are_counted_for_each_sample():
    y0, ends = torch.ones(3, 1), torch.tensor([1.0, 3.0, 0.2])
    times = torch.stack([torch.zeros(3), ends], -1)
    stats = gd.solve(lambda t, y: -y, y0, times, batch_dims=1, solver="rk4", step_size=0.5).stats
    assert stats.accepted.tolist() == [2, 6, 1]
    assert stats.evaluations.tolist() == [8, 24, 4]
    assert stats.field_calls == 24


def test_steps_of_a_given_size_meet_the_events_of_each_sample():
    y0, times = torch.ones(2, 1), torch.tensor([[0.0, 1.0], [0.0, 3.0]])
    options = {"solver": "rk4", "step_size": 0.5, "events": [gd.Event(lambda t, y: y[..., 0] - 2)]}
    both = gd.solve(lambda t, y: y + t, y0, times, batch_dims=1, **options)
    for i in range(2):
        alone = gd.solve(lambda t, y: y + t, y0[i], times[i], **options)
        torch.testing.assert_close(both.states[:, i], alone.states, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(both.events[0].times[:, i], alone.events[0].times)


@pytest.mark.parametrize("solver", ["euler", "rk4", "adams", "trapezoid"])
def test_time_between_outputs_is_solved_for_in_each_samples_own_steps(solver: str):
    """Without dense output, a sample that has far to go does not lend its steps to another."""
    times = torch.tensor([[0.0, 0.5, 1.0], [0.0, 0.05, 1.0]])
    options = {"solver": solver, "num_steps": 8, "dense": False}

    def f(t: Tensor, y: Tensor) -> Tensor:
        return -y * torch.cos(3 * t)

    batch = gd.solve(f, torch.ones(2, 1), times, batch_dims=1, **options)
    for t in (0.4, 0.9):
        together = batch.at(t)
        for i in range(2):
            alone = gd.solve(f, torch.ones(1), times[i], **options).at(t)
            torch.testing.assert_close(together[i], alone, rtol=1e-12, atol=0)


def test_ends_of_each_sample_may_be_arrays():
    flow, h = gd.Flow(lambda t, h, graph: -h), torch.randn(3, 2, 1)
    ends = np.array([0.0, 1.0, 2.0])
    expected = flow(h, None, 0.0, torch.tensor([0.0, 1.0, 2.0]))
    assert torch.equal(flow(h, None, 0, ends), expected)
    assert torch.equal(flow(h, None, np.zeros(3), ends), expected)
    assert torch.equal(flow(h, None, np.array(0.0), ends[::-1]), flow(h, None, 0.0, ends[::-1]))
    assert torch.equal(flow(h, None, ends, ends), h)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("solver", ["dopri5", "tsit5"])
def test_counts_of_64_samples_equal_those_alone_over_a_factor_100_of_stiffness(solver: str):
    rates = torch.logspace(0, 2, 64)
    y0 = torch.randn(64, 2)
    with torch.no_grad():
        assert_each_sample_as_if_alone(
            y0, torch.tensor([0.0, 1.0]), rates, solver=solver, rtol=1e-4, atol=1e-6
        )
        solution = gd.solve(
            relaxation, y0, [0.0, 1.0], (rates[:, None],), batch_dims=1, solver=solver, rtol=1e-4
        )
    assert solution.stats.accepted.max() > 3 * solution.stats.accepted.min()
    assert (solution.stats.rejected > 0).any()
    assert solution.stats.field_calls >= solution.stats.evaluations.max()
    assert solution.stats.field_calls < solution.stats.evaluations.sum() / 20


def test_own_output_times_cost_each_sample_its_own_interpolation():
    """dopri8 needs three more stages in a step that holds an output, and only there."""
    y0, rates = torch.randn(3, 2), torch.tensor([1.0, 3.0, 9.0])
    times = torch.tensor([[0.0, 0.1, 0.2, 1.0], [0.0, 0.97, 0.98, 1.0], [0.0, 0.3, 0.6, 0.9]])
    assert_each_sample_as_if_alone(y0, times, rates, solver="dopri8")


def test_forward_and_backward_in_one_batch():
    problem = heat()
    y0 = torch.stack([problem.y0, problem.exact(1.0)])
    times = torch.tensor([[0.0, 0.5, 1.0], [1.0, 0.5, 0.0]])
    solution = gd.solve(problem.f, y0, times, batch_dims=1, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(solution.states[-1, 0], problem.exact(1.0), rtol=0, atol=1e-8)
    torch.testing.assert_close(solution.states[-1, 1], problem.y0, rtol=0, atol=1e-8)
    torch.testing.assert_close(solution.states[1, 0], solution.states[1, 1], rtol=0, atol=1e-8)


@pytest.mark.parametrize("solver", ADAPTIVE)
def test_finished_sample_rests_unchanged_to_the_bit(solver: str):
    seen = []

    def f(t: Tensor, y: Tensor) -> Tensor:
        seen.append((t.clone(), y.clone()))
        return torch.cos(20 * t) * y

    y0 = torch.rand(3, 2)
    times = torch.tensor([[0.0, 0.1], [0.0, 3.0], [0.0, 1.0]])
    solution = gd.solve(f, y0, times, solver=solver, batch_dims=1)
    for sample in range(3):
        final, end = solution.states[-1, sample], times[sample, 1]
        # Stages may visit the end time before the last step is accepted; counts say when it was.
        needed = int(solution.stats.evaluations[sample])
        for t, y in seen[needed:] if sample != 1 else ():
            assert torch.equal(y[sample], final)
            assert t[sample] == end
    assert len(seen) == solution.stats.field_calls


@pytest.mark.parametrize("solver", gd.SOLVERS)
def test_zero_span_sample_rests_beside_moving_ones(solver: str):
    def field(t: Tensor, h: Tensor, graph: None) -> Tensor:
        x, v = h.chunk(2, -1)
        return torch.cat([v, -torch.sin(x)], -1)

    flow = gd.Flow(field, solver=solver, num_steps=None if solver in ADAPTIVE else 6)
    h = torch.rand(3, 2, 4)
    end = torch.tensor([1.0, 0.3, -0.5])
    moved = flow(h, None, 0.3, end)
    assert torch.equal(moved[1], h[1])
    for sample in (0, 2):
        alone = flow(h[sample], None, 0.3, end[sample].item())
        torch.testing.assert_close(moved[sample], alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("wants_gradient", [True, False])
@pytest.mark.parametrize("options", [{"solver": "rk4", "num_steps": 8}, {"solver": "dopri5"}])
def test_zero_span_sample_rests_where_the_field_is_infinite(options: dict, wants_gradient: bool):
    """y′ = 1/y from 0, beside y(1) = √3 from 1."""
    h = torch.tensor([0.0, 1.0]).reshape(2, 1, 1).requires_grad_(wants_gradient)
    flow = gd.Flow(lambda t, h, graph: 1 / h, **options)
    end = flow(h, None, 0.0, torch.tensor([0.0, 1.0])).flatten()
    assert end[0] == 0
    assert end[1].item() == pytest.approx(math.sqrt(3), abs=1e-3)


def test_steps_to_a_time_between_outputs_are_counted_without_rounding():
    """Of a hundred steps seven lead to 0.07, though 0.07 · 100 is more than 7 in floats."""
    y0 = torch.ones(1)
    solution = gd.solve(lambda t, y: -y, y0, [0.0, 1.0], solver="euler", num_steps=100, dense=False)
    torch.testing.assert_close(solution.at(0.07), 0.99**7 * y0, rtol=1e-12, atol=0)


@pytest.mark.parametrize("solver", gd.SOLVERS)
def test_every_solver_serves_times_of_each_sample(solver: str):
    def f(t: Tensor, y: Tensor) -> Tensor:
        x, v = y.chunk(2, -1)
        return torch.cat([v, torch.cos(t) - x], -1)

    y0 = torch.rand(3, 4)
    times = torch.tensor([[0.0, 0.4, 1.0], [2.0, 1.9, 1.5], [-1.0, 0.0, 0.7]])
    options = {"solver": solver, "num_steps": None if solver in ADAPTIVE else 9}
    batch = gd.solve(f, y0, times, batch_dims=1, **options)
    for i in range(3):
        alone = gd.solve(f, y0[i], times[i], **options)
        torch.testing.assert_close(batch.states[:, i], alone.states, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("solver", ["tsit5", "rk4", "trapezoid", "collocation"])
def test_two_batch_dimensions_are_like_one(solver: str):
    rates = torch.rand(2, 3) + 0.5
    y0 = torch.randn(2, 3, 4)
    times = torch.rand(2, 3, 5).add_(0.01).cumsum(-1)
    num_steps = None if solver == "tsit5" else 6
    options = {"solver": solver, "num_steps": num_steps}
    two = gd.solve(relaxation, y0, times, (rates[..., None],), batch_dims=2, **options)
    one = gd.solve(
        relaxation,
        y0.reshape(6, 4),
        times.reshape(6, 5),
        (rates.reshape(6, 1),),
        batch_dims=1,
        **options,
    )
    assert two.states.shape == (5, 2, 3, 4)
    torch.testing.assert_close(two.states.reshape(5, 6, 4), one.states, rtol=1e-10, atol=1e-11)
    assert torch.equal(two.stats.evaluations.reshape(6), one.stats.evaluations)
    assert two.status.shape == two.end_times.shape == (2, 3)


def test_samples_without_components_are_scalars():
    """`batch_dims` may cover the whole state: each number is a system of its own."""
    y0 = torch.tensor([1.0, 2.0, 3.0])
    solution = gd.solve(lambda t, y: -y, y0, [0.0, 1.0], batch_dims=1, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(solution.states[-1], y0 * torch.tensor(-1.0).exp())
    scalar = gd.solve(lambda t, y: -y, y0[1], [0.0, 1.0], rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(scalar.states[-1], solution.states[-1, 1])
    assert scalar.stats.accepted == solution.stats.accepted[1]


def test_whole_state_is_one_system_by_default():
    """One error norm, one step size: a stiff part sets the pace for all."""
    rates = torch.tensor([[1.0], [50.0]])
    y0 = torch.randn(2, 3)
    together = gd.solve(relaxation, y0, [0.0, 1.0], (rates,))
    apart = gd.solve(relaxation, y0, [0.0, 1.0], (rates,), batch_dims=1)
    assert together.stats.accepted.shape == ()
    assert apart.stats.accepted[0] < together.stats.accepted


class Watching(nn.Module):
    """A field that notes the time it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, t: Tensor, h: Tensor, graph: object) -> Tensor:
        self.seen.append(t)
        assert (h + t).shape == h.shape
        return -h


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("solver", ["tsit5", "rk4", "adams", "trapezoid", "collocation"])
def test_field_receives_time_that_broadcasts(dtype: torch.dtype, solver: str):
    num_steps = None if solver == "tsit5" else 3
    for batch in ((), (4,), (2, 3)):
        field = Watching()
        flow = gd.Flow(field, solver=solver, num_steps=num_steps, rtol=1e-2, atol=1e-2)
        flow(torch.rand(*batch, 5, 2, dtype=dtype), None, 0.0, 1.0)
        flow(torch.rand(*batch, 5, 2, dtype=dtype), None, 0.0, torch.rand(batch) + 0.1)
        allowed = {(), (*batch, 1, 1)}
        assert {tuple(t.shape) for t in field.seen} <= allowed
        assert {t.dtype for t in field.seen} == {dtype}


def test_field_sees_the_whole_batch_at_every_call():
    shapes = set()

    def f(t: Tensor, y: Tensor) -> Tensor:
        shapes.add(tuple(y.shape))
        return -y * torch.tensor([1.0, 30.0])[:, None]

    gd.solve(f, torch.rand(2, 3), [0.0, 1.0], batch_dims=1)
    assert shapes == {(2, 3)}


@pytest.mark.parametrize("per_sample", [False, True])
def test_gradients_of_a_batch_are_those_of_its_samples(per_sample: bool):
    y0 = torch.randn(3, 2, requires_grad=True)
    rates = torch.tensor([0.5, 2.0, 20.0], requires_grad=True)
    times = torch.tensor([[0.0, 0.5, 1.0], [1.0, 0.9, 0.5], [0.0, 0.2, 0.4]])
    times = (times if per_sample else times[0]).requires_grad_()
    weights = torch.randn(3, 3, 2)
    batch = gd.solve(relaxation, y0, times, (rates[:, None],), batch_dims=1)
    together = torch.autograd.grad((weights * batch.states).sum(), (y0, times, rates))
    total = 0
    for i in range(3):
        own = times[i] if per_sample else times
        alone = gd.solve(relaxation, y0[i], own, (rates[i],))
        total = total + (weights[:, i] * alone.states).sum()
    apart = torch.autograd.grad(total, (y0, times, rates))
    for a, b in zip(together, apart, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("solver", ADAPTIVE)
def test_asking_the_host_rarely_changes_nothing(solver: str, monkeypatch: pytest.MonkeyPatch):
    """On a GPU the loop runs on until the last sample can have arrived; here it is made to."""
    rates, y0 = torch.tensor([[1.0], [30.0], [300.0], [0.1]]), torch.randn(4, 2)
    times = torch.tensor([[0.0, 1.0], [0.0, 0.5], [1.0, 1.2], [0.0, -3.0]])
    options = {"solver": solver, "batch_dims": 1, "dense": False, "on_failure": "status"}
    asked = 0
    run = AdaptiveSolve.run
    plan = AdaptiveSolve._attempts_before_the_end

    def run_on(self: AdaptiveSolve, *inputs: object) -> Tensor:
        self.host_follows = False
        return run(self, *inputs)

    def count(self: AdaptiveSolve) -> int:
        nonlocal asked
        asked += 1
        return plan(self)

    with torch.no_grad():
        followed = gd.solve(relaxation, y0, times, (rates,), **options)
        monkeypatch.setattr(AdaptiveSolve, "run", run_on)
        monkeypatch.setattr(AdaptiveSolve, "_attempts_before_the_end", count)
        alone = gd.solve(relaxation, y0, times, (rates,), **options)
    assert torch.equal(followed.states, alone.states)
    assert torch.equal(followed.end_times, alone.end_times)
    for name in ("evaluations", "accepted", "rejected"):
        assert torch.equal(getattr(followed.stats, name), getattr(alone.stats, name))
    assert 0 < asked < (followed.stats.accepted + followed.stats.rejected).max() / 2
