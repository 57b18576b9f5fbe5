"""Events: zeros of g(t, y) found where analysis says they are, per sample, and differentiable."""

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

import graphode as gd
from tests.problems import oscillator

TIGHT = {"rtol": 1e-10, "atol": 1e-12}
GRADIENTS = ["backprop", "checkpoint", "adjoint", "checkpoint_adjoint"]


def swing(t: Tensor, y: Tensor, frequency: Tensor) -> Tensor:
    """x″ = −ω² x, state (x, v)."""
    return torch.cat([y[..., 1:], -(frequency**2) * y[..., :1]], -1)


def fall(t: Tensor, y: Tensor, gravity: Tensor) -> Tensor:
    """A ball that falls: (height, velocity)."""
    return torch.cat([y[..., 1:], -gravity + 0 * y[..., :1]], -1)


def position(t: Tensor, y: Tensor) -> Tensor:
    return y[..., 0]


def velocity(t: Tensor, y: Tensor) -> Tensor:
    return y[..., 1]


def test_all_zeros_of_a_cosine_are_found():
    problem = oscillator()
    solution = gd.solve(problem.f, problem.y0, [0.0, 10.0], events=[gd.Event(position)], **TIGHT)
    (record,) = solution.events
    expected = torch.tensor([0.5, 1.5, 2.5]) * math.pi
    assert record.counts == 3
    torch.testing.assert_close(record.times, expected, rtol=0, atol=1e-8)
    torch.testing.assert_close(record.states[:, 0], torch.zeros(3), rtol=0, atol=1e-9)
    torch.testing.assert_close(
        record.states[:, 1], torch.tensor([-1.0, 1.0, -1.0]), rtol=0, atol=1e-8
    )
    assert solution.status == gd.Status.SUCCESS
    assert problem.error(solution.states[-1], 10.0) < 1e-7


def test_events_may_be_functions_or_one_alone():
    problem = oscillator()
    expected = gd.solve(problem.f, problem.y0, [0.0, 5.0], events=[gd.Event(position)])
    for events in (position, [position], gd.Event(position), (position,)):
        found = gd.solve(problem.f, problem.y0, [0.0, 5.0], events=events)
        assert torch.equal(found.events[0].times, expected.events[0].times)
    flow = gd.Flow(lambda t, h, graph: -h)
    solution = flow.solve(torch.ones(1, 1), None, events=lambda t, h: h[0, 0] - 0.7)
    assert solution.events[0].counts == 1


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("events", [3, [3], [gd.Event(position), None], "zero"])
def test_events_that_are_no_functions_are_refused(events: object):
    with pytest.raises(TypeError, match=r"`events` must be .* but holds .* Write for example"):
        gd.solve(lambda t, y: -y, torch.ones(1), [0.0, 1.0], events=events)


@pytest.mark.parametrize(("direction", "zeros"), [(1, [1.5, 3.5]), (-1, [0.5, 2.5])])
def test_direction_selects_rising_or_falling_zeros(direction: int, zeros: list[float]):
    problem = oscillator()
    event = gd.Event(position, direction=direction)
    solution = gd.solve(problem.f, problem.y0, [0.0, 11.5], events=[event], **TIGHT)
    expected = torch.tensor(zeros) * math.pi
    torch.testing.assert_close(solution.events[0].times, expected, rtol=0, atol=1e-8)


def test_each_sample_has_its_own_zeros():
    frequency = torch.tensor([[1.0], [2.0], [0.1]])
    y0 = torch.tensor([1.0, 0.0]).expand(3, 2)
    solution = gd.solve(
        swing, y0, [0.0, 4.0], (frequency,), batch_dims=1, events=[gd.Event(position)], **TIGHT
    )
    (record,) = solution.events
    assert record.counts.tolist() == [1, 3, 0]
    expected = torch.full((3, 3), torch.nan)
    expected[0, 0] = math.pi / 2
    expected[:, 1] = torch.tensor([1.0, 3.0, 5.0]) * math.pi / 4
    torch.testing.assert_close(record.times, expected, rtol=0, atol=1e-8, equal_nan=True)
    assert record.states.shape == (3, 3, 2)
    assert record.states[:, 2].isnan().all()


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_terminal_event_stops_each_sample_at_its_own_time(gradient: str):
    height = torch.tensor([[1.0, 0.0], [4.0, 0.0], [100.0, 0.0]], requires_grad=True)
    gravity = torch.tensor([2.0])
    times = torch.tensor([0.0, 0.5, 1.5, 2.5])
    ground = gd.Event(position, terminal=True)
    solution = gd.solve(
        fall, height, times, (gravity,), batch_dims=1, events=[ground], gradient=gradient, **TIGHT
    )
    landing = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(solution.end_times[:2], landing, rtol=0, atol=1e-9)
    assert solution.end_times[2] == 2.5
    assert solution.status.tolist() == [gd.Status.EVENT, gd.Status.EVENT, gd.Status.SUCCESS]
    assert solution.succeeded
    # Before the ground it falls, afterwards it rests where it landed.
    clock = torch.minimum(times[:, None], torch.tensor([1.0, 2.0, 2.5]))
    expected = torch.stack([height[:, 0] - clock**2, -2 * clock], -1)
    torch.testing.assert_close(solution.states, expected, rtol=0, atol=1e-8)
    assert solution.events[0].counts.tolist() == [1, 1, 0]


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("solver", ["tsit5", "dopri8", "rk4"])
def test_event_time_and_state_have_the_analytic_derivative(gradient: str, solver: str):
    """t* = √(2h/g), v* = −√(2gh)."""
    height = torch.tensor([3.0, 0.0], requires_grad=True)
    gravity = torch.tensor([2.0], requires_grad=True)
    num_steps = 20 if solver == "rk4" else None
    solution = gd.solve(
        fall,
        height,
        [0.0, 3.0],
        (gravity,),
        events=[gd.Event(position, terminal=True)],
        solver=solver,
        num_steps=num_steps,
        gradient=gradient,
        **TIGHT,
    )
    (record,) = solution.events
    torch.testing.assert_close(record.times, torch.tensor([math.sqrt(3)]), rtol=0, atol=1e-9)
    by_height, by_gravity = torch.autograd.grad(
        record.times.sum(), (height, gravity), retain_graph=True
    )
    assert by_height[0].item() == pytest.approx(1 / math.sqrt(12), abs=1e-8)
    assert by_gravity.item() == pytest.approx(-math.sqrt(3) / 4, abs=1e-8)
    for landed in (record.states[0, 1], solution.states[-1, 1]):
        by_height, by_gravity = torch.autograd.grad(landed, (height, gravity), retain_graph=True)
        assert by_height[0].item() == pytest.approx(-1 / math.sqrt(3), abs=1e-8)
        assert by_gravity.item() == pytest.approx(-math.sqrt(3) / 2, abs=1e-8)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("terminal", [False, True])
def test_gradcheck_of_events(gradient: str, terminal: bool):
    """… of times, states there, and the states at the outputs, before and after."""
    method = gd.CheckpointAdjoint(resets=2) if gradient == "checkpoint_adjoint" else gradient
    there, outputs = torch.randn(1, 2, 2), torch.randn(3, 2, 2)
    y0 = torch.tensor([[1.0, 0.1], [1.2, -0.1]], requires_grad=True)
    frequency = torch.tensor([[1.0], [1.3]], requires_grad=True)
    start = torch.tensor(0.1, requires_grad=True)

    def solve(y0: Tensor, frequency: Tensor, start: Tensor) -> tuple[Tensor, ...]:
        times = torch.stack([start, start + 0.4, torch.tensor(2.2)])
        events = [gd.Event(lambda t, y: y[..., 0] - 0.1 * t[..., 0], terminal=terminal)]
        solution = gd.solve(
            swing,
            y0,
            times.expand(2, 3),
            (frequency,),
            batch_dims=1,
            events=events,
            gradient=method,
            solver="dopri8",
            **TIGHT,
        )
        (record,) = solution.events
        assert record.counts.tolist() == [1, 1]
        return record.times, (there * record.states).sum(), (outputs * solution.states).sum()

    assert gradcheck(solve, (y0, frequency, start), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("solver", "accuracy"),
    [
        ("euler", 0.1),
        ("heun", 2e-2),
        ("rk4", 1e-5),
        ("adams", 1e-4),
        ("leapfrog", 1e-2),
        ("dopri5", 1e-5),
        ("trapezoid", 1e-2),
        ("collocation", 1e-6),
    ],
)
def test_fixed_step_solvers_find_events(solver: str, accuracy: float):
    problem = oscillator()
    events = [gd.Event(position), gd.Event(velocity)]
    num_steps = 400 if solver == "euler" else 50
    with torch.no_grad():
        solution = gd.solve(
            problem.f,
            problem.y0,
            [0.0, 6.0],
            solver=solver,
            num_steps=num_steps,
            events=events,
            **TIGHT,
        )
    torch.testing.assert_close(
        solution.events[0].times, torch.tensor([0.5, 1.5]) * math.pi, rtol=0, atol=accuracy
    )
    torch.testing.assert_close(
        solution.events[1].times, torch.tensor([math.pi]), rtol=0, atol=accuracy
    )
    assert solution.stats.accepted == num_steps


@pytest.mark.parametrize(
    "solver", ["rk4", "adams", "leapfrog", "trapezoid", "collocation", "dopri8"]
)
def test_fixed_steps_stop_a_sample_early_beside_others(solver: str):
    """Also while a multi-step method still gathers its history."""
    y0 = torch.tensor([[0.05, -1.0], [1.0, 0.0], [1.0, 0.5]])
    events = [gd.Event(position, terminal=True)]
    one = torch.ones(1)
    options = {"solver": solver, "num_steps": 40, "events": events}
    batch = gd.solve(swing, y0, [0.0, 3.0], (one,), batch_dims=1, **options)
    for i in range(3):
        alone = gd.solve(swing, y0[i], [0.0, 3.0], (one,), **options)
        torch.testing.assert_close(batch.states[:, i], alone.states, rtol=0, atol=1e-9)
        torch.testing.assert_close(batch.end_times[i], alone.end_times, rtol=0, atol=1e-9)


def test_first_of_several_terminal_events_counts():
    problem = oscillator()
    events = [
        gd.Event(lambda t, y: t - 2.0, terminal=True),
        gd.Event(position, terminal=True),
        gd.Event(lambda t, y: t - 1.0),
        gd.Event(lambda t, y: t - 1.8),
    ]
    solution = gd.solve(problem.f, problem.y0, [0.0, 5.0], events=events, **TIGHT)
    assert solution.end_times.item() == pytest.approx(math.pi / 2, abs=1e-9)
    assert [int(record.counts) for record in solution.events] == [0, 1, 1, 0]
    torch.testing.assert_close(solution.states[-1], torch.tensor([0.0, -1.0]), rtol=0, atol=1e-8)


def test_event_does_not_change_the_steps():
    problem = oscillator()
    plain = gd.solve(problem.f, problem.y0, [0.0, 6.0])
    watched = gd.solve(problem.f, problem.y0, [0.0, 6.0], events=[gd.Event(position)])
    assert torch.equal(plain.states, watched.states)
    assert plain.stats.accepted == watched.stats.accepted


def test_events_are_found_backwards_in_time():
    """In the direction of integration cos t falls through zero at −π/2, as seen from 0."""
    problem = oscillator()
    for direction, expected in ((0, [-0.5, -1.5]), (-1, [-0.5]), (1, [-1.5])):
        event = gd.Event(position, direction=direction)
        solution = gd.solve(problem.f, problem.y0, [0.0, -6.0], events=[event], **TIGHT)
        torch.testing.assert_close(
            solution.events[0].times, torch.tensor(expected) * math.pi, rtol=0, atol=1e-8
        )
    stop = gd.Event(position, terminal=True)
    solution = gd.solve(problem.f, problem.y0, [0.0, -1.0, -6.0], events=[stop], **TIGHT)
    assert solution.end_times.item() == pytest.approx(-math.pi / 2, abs=1e-9)
    torch.testing.assert_close(solution.states[-1], torch.tensor([0.0, 1.0]), rtol=0, atol=1e-8)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("gradient", ["backprop", "checkpoint"])
def test_dense_output_rests_after_a_terminal_event(dense: bool, gradient: str):
    y0 = torch.tensor([[1.0, 0.0], [4.0, 0.0]], requires_grad=True)
    solution = gd.solve(
        fall,
        y0,
        [0.0, 1.7, 3.0],
        (torch.tensor([2.0]),),
        batch_dims=1,
        events=[gd.Event(position, terminal=True)],
        dense=dense,
        gradient=gradient,
        **TIGHT,
    )
    for t in (0.4, 0.9, 1.2, 1.7, 1.9, 2.3, 3.0):
        clock = torch.tensor([min(t, 1.0), min(t, 2.0)])
        expected = torch.stack([y0[:, 0] - clock**2, -2 * clock], -1)
        torch.testing.assert_close(solution.at(t), expected, rtol=0, atol=1e-7)


def test_zero_at_the_start_is_no_crossing():
    solution = gd.solve(
        fall,
        torch.tensor([0.0, 1.0]),
        [0.0, 3.0],
        (torch.tensor([1.0]),),
        events=[gd.Event(position, terminal=True)],
        solver="rk4",
        num_steps=50,
    )
    assert solution.end_times.item() == pytest.approx(2.0, abs=1e-9)


def test_terminal_event_far_from_time_zero():
    """Late times and short steps: the crossing must not be lost to the rounding of time."""
    start = 1.0e5
    y0 = torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    solution = gd.solve(
        lambda t, y: 1e8 * swing(t * 0, y, torch.tensor([1.0])),
        y0,
        [start, start + 1e-7],
        batch_dims=1,
        events=[gd.Event(position, terminal=True)],
    )
    assert solution.status.tolist() == [gd.Status.EVENT] * 2
    assert solution.states[-1, :, 0].abs().max() < 1e-2
    assert solution.events[0].counts.tolist() == [1, 1]


def test_no_crossing_is_an_empty_record():
    problem = oscillator()
    event = gd.Event(lambda t, y: y[..., 0] + 2)
    solution = gd.solve(problem.f, problem.y0, [0.0, 3.0], events=[event])
    assert solution.events[0].counts == 0
    assert solution.events[0].times.shape == (0,)
    assert solution.events[0].states.shape == (0, 2)


def test_flow_finds_events_of_each_sample():
    flow = gd.Flow(lambda t, h, graph: -h, solver="tsit5", **TIGHT)
    h = torch.tensor([4.0, 8.0]).reshape(2, 1, 1)
    event = gd.Event(lambda t, h: h.amax((-2, -1)) - 1, terminal=True)
    solution = flow.solve(h, None, [0.0, 5.0], events=[event])
    torch.testing.assert_close(
        solution.end_times, torch.tensor([4.0, 8.0]).log(), rtol=0, atol=1e-9
    )


def test_event_function_with_the_wrong_shape_is_refused():
    problem = oscillator()
    with pytest.raises(ValueError, match=r"one value per sample.*Reduce over the state"):
        gd.solve(problem.f, problem.y0, [0.0, 1.0], events=[gd.Event(lambda t, y: y)])
    with pytest.raises(ValueError, match=r"`direction` must be -1, 0 or 1"):
        gd.Event(position, direction=2)


@pytest.mark.parametrize("solver", ["tsit5", "rk4", "trapezoid"])
def test_events_want_a_gradient_only_where_something_does(solver: str):
    num_steps = None if solver == "tsit5" else 20
    event = gd.Event(lambda t, y: y[0] - 0.5, terminal=True)
    solution = gd.solve(
        lambda t, y: -y, torch.ones(1), [0.0, 2.0], solver=solver, num_steps=num_steps, events=event
    )
    assert not solution.events[0].times.requires_grad
    assert not solution.events[0].states.requires_grad
    assert not solution.states.requires_grad


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint"])
def test_event_without_a_derivative_is_located_all_the_same(gradient: str):
    rate = torch.tensor(1.0, requires_grad=True)
    solution = gd.solve(
        lambda t, y: -rate * y, torch.ones(1), [0.0, 2.0], gradient=gradient,
        events=lambda t, y: (y[0] < 0.5).to(y) - 0.5, rtol=1e-9, atol=1e-9,
    )  # fmt: skip
    (time,) = solution.events[0].times
    assert time.item() == pytest.approx(math.log(2), abs=1e-6)
    assert not time.requires_grad
    assert torch.autograd.grad(solution.states[-1].sum(), rate)[0] < -0.1
