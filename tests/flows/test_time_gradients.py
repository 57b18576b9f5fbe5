"""The gradient of times where no step carries it: in spans of zero length, and in `at`."""

import pytest
import torch
from torch import Tensor

import graphode as gd
from graphode.flows.evaluation import Evaluation
from graphode.flows.layout import Layout
from graphode.flows.recorded import solve_recorded
from graphode.flows.runge_kutta import RungeKutta
from graphode.flows.tableaus import RK4
from tests.problems import gompertz

pytestmark = pytest.mark.usefixtures("without_type_checks")

GRADIENTS = ["backprop", "checkpoint", "adjoint", "checkpoint_adjoint"]
SOLVERS = [{"solver": "dopri5"}, {"solver": "rk4", "num_steps": 5}]
TIGHT = {"rtol": 1e-10, "atol": 1e-11}


def field(t: Tensor, h: Tensor, graph: object = None) -> Tensor:
    return torch.sin(3 * h) + torch.cos(t) * h


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("options", SOLVERS)
@pytest.mark.parametrize("ends", [[0.4, 1.0], [0.4, 0.4]])
def test_time_gradient_of_a_zero_span_is_the_velocity(
    gradient: str, options: dict, ends: list[float]
):
    """Alone, and beside a sample that moves."""
    h = torch.randn(2, 3, 1, requires_grad=True)
    t0, t1 = torch.full((2,), 0.4, requires_grad=True), torch.tensor(ends, requires_grad=True)
    end = gd.Flow(field, gradient=gradient, **options)(h, None, t0, t1)
    assert torch.equal(end[0], h[0])
    weight = torch.randn(3, 1)
    by_t0, by_t1, by_h = torch.autograd.grad((weight * end[0]).sum(), (t0, t1, h))
    velocity = (weight * field(t0[0], h[0])).sum().detach()
    torch.testing.assert_close(by_t1, torch.stack([velocity, torch.zeros(())]))
    torch.testing.assert_close(by_t0, torch.stack([-velocity, torch.zeros(())]))
    torch.testing.assert_close(by_h[0], weight)


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("options", SOLVERS)
def test_a_shared_time_of_a_zero_span_has_a_gradient(gradient: str, options: dict):
    h, t1 = torch.randn(2, 3, 1), torch.tensor(0.0, requires_grad=True)
    end = gd.Flow(field, gradient=gradient, **options)(h, None, 0.0, t1)
    (found,) = torch.autograd.grad(end.sum(), t1)
    torch.testing.assert_close(found, field(torch.tensor(0.0), h).sum())


def test_parameters_learn_nothing_from_a_zero_span():
    weight = torch.tensor(0.5, requires_grad=True)
    for gradient in ("backprop", "checkpoint"):
        t1 = torch.tensor([0.0, 1.0], requires_grad=True)
        flow = gd.Flow(lambda t, h, graph: weight * h, gradient=gradient)
        end = flow(torch.ones(2, 1, 1), None, 0.0, t1)
        (found,) = torch.autograd.grad(end[0].sum(), weight)
        assert found == 0


def test_second_derivatives_of_a_zero_span_are_those_of_the_flow():
    h = torch.randn(2, 1, requires_grad=True)
    t0, t1 = (torch.tensor(0.4, requires_grad=True) for _ in range(2))
    end = gd.Flow(field)(h, None, t0, t1)
    slopes = torch.autograd.grad(end.sum(), (t0, t1, h), create_graph=True)
    # Both sides of a vanishing span, where steps of a tight solve carry the derivatives.
    near = gd.Flow(field, **TIGHT)(h, None, t0, t1 + 1e-6)
    expected = torch.autograd.grad(near.sum(), (t0, t1, h), create_graph=True)
    for slope, other in zip(slopes, expected, strict=True):
        found, wanted = (torch.autograd.grad(x.sum(), h, retain_graph=True) for x in (slope, other))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    (acceleration,) = torch.autograd.grad(slopes[1], t1)
    t, y = t1.detach().requires_grad_(), h.detach().requires_grad_()
    velocity = field(t, y)
    by_time, by_state = torch.autograd.grad(
        velocity.sum(), (t, y), create_graph=True, retain_graph=True
    )
    torch.testing.assert_close(acceleration, by_time + (by_state * velocity).sum())


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint"])
def test_a_zero_span_costs_nothing_where_times_want_no_gradient(gradient: str):
    h, flow = torch.randn(2, 3, 1, requires_grad=True), gd.Flow(field, gradient=gradient)
    with gd.record_stats() as stats:
        flow(h, None, 0.0, torch.tensor([0.0, 1.0])).sum().backward()
        flow(h[1:], None, 0.0, torch.tensor([1.0])).sum().backward()
        flow(h, None, 0.0, torch.tensor([0.0, 0.0])).sum().backward()
    beside, alone, nobody = stats
    assert beside.field_calls == alone.field_calls
    assert beside.backward_evaluations == alone.backward_evaluations
    assert nobody.backward_evaluations == 0


def test_a_field_without_a_value_leaves_the_state_of_a_zero_span_alone():
    h, t1 = -torch.ones(2, 1), torch.tensor(0.0, requires_grad=True)
    assert torch.equal(gd.Flow(lambda t, h, graph: h.log())(h, None, 0.0, t1), h)


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("t", [0.0, 0.6, 1.1, 2.0])
def test_output_times_do_not_move_the_solution_between_them(gradient: str, dense: bool, t: float):
    """y(t) depends on the start alone: dy(t)/dt0 = −f(y(t)), since the field is autonomous."""
    problem = gompertz(2.0)
    times = torch.tensor([0.0, 0.6, 2.0], requires_grad=True)
    moment = torch.tensor(t, requires_grad=True)
    solution = gd.solve(problem.f, problem.y0, times, gradient=gradient, dense=dense, **TIGHT)
    weight = torch.randn(4)
    by_times, by_moment = torch.autograd.grad(weight @ solution.at(moment), (times, moment))
    velocity = weight @ problem.f(moment, problem.exact(t)).detach()
    expected = torch.stack([-velocity, torch.zeros(()), torch.zeros(())])
    torch.testing.assert_close(by_times, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(by_moment, velocity, rtol=0, atol=1e-5)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_output_times_after_a_terminal_event_have_no_gradient(gradient: str):
    times = torch.tensor([0.0, 0.5, 2.0], requires_grad=True)
    stop = gd.Event(lambda t, y: y[..., 0] - 2.0, terminal=True)
    solution = gd.solve(
        lambda t, y: y, torch.ones(1), times, events=[stop], gradient=gradient, **TIGHT
    )
    for t in (1.0, 2.0):
        (found,) = torch.autograd.grad(solution.at(t).sum(), times, retain_graph=True)
        torch.testing.assert_close(found, torch.zeros(3), rtol=0, atol=1e-6)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_times_in_a_list_keep_their_gradients(gradient: str):
    problem = gompertz(2.0)
    middle, end = (torch.tensor(t, requires_grad=True) for t in (0.6, 2.0))
    solution = gd.solve(problem.f, problem.y0, [0.0, middle, end], gradient=gradient, **TIGHT)
    (found,) = torch.autograd.grad(solution.states[1].sum(), middle, retain_graph=True)
    expected = problem.f(middle, problem.exact(0.6)).sum().detach()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert solution.times.dtype == torch.float64


def test_a_list_of_numbers_keeps_its_digits_beside_a_tensor():
    solution = gd.solve(field, torch.ones(1, dtype=torch.float32), [0.1, torch.tensor(1.0)])
    assert solution.times[0].item() == 0.1


def test_tensors_of_different_shapes_in_a_list_are_refused():
    with pytest.raises(ValueError, match=r"one shape, .* shapes \(\), \(2,\).*\[\*batch, time\]"):
        gd.solve(field, torch.ones(2, 1), [0.0, torch.tensor([1.0, 2.0])], batch_dims=1)


@pytest.mark.parametrize("times", [[0.0, 0.3, 0.5, 1.0], [[0.0, 0.25, 1.0], [1.0, 0.5, 0.0]]])
def test_recorded_times_have_their_gradients_at_the_end_of_a_step_too(times: list):
    """What is compiled or captured does not know where a step ends, and may not cut there."""
    y0, moments = torch.randn(2, 3), torch.tensor(times, requires_grad=True)
    layout = Layout.of(y0, batch_dims=1)
    recorded = solve_recorded(RungeKutta(RK4), Evaluation(field, (), layout), y0, moments, 4)
    eager = gd.solve(field, y0, moments, solver="rk4", num_steps=4, batch_dims=1)
    found, expected = (
        torch.autograd.grad(solution.states.sin().sum(), moments)[0]
        for solution in (recorded, eager)
    )
    torch.testing.assert_close(found, expected)
