"""What holds for every flow: it composes, it reverses, and looking at it does not disturb it."""

import math

import pytest
import torch
from torch import Tensor

import graphode as gd
from tests.problems import Problem, gompertz, heat, kepler, oscillator, riccati

# Thousands of steps: the type checks are left to the other files.
pytestmark = pytest.mark.usefixtures("without_type_checks")

ADAPTIVE = ["bosh3", "dopri5", "tsit5", "dopri8"]
FIXED = [
    "euler",
    "midpoint",
    "heun",
    "rk4",
    "rk4_38",
    "adams",
    "leapfrog",
    "implicit_euler",
    "trapezoid",
    "collocation",
]
TIGHT = {"rtol": 1e-10, "atol": 1e-12}


def problem_for(solver: str) -> Problem:
    return kepler(t1=2.0) if solver == "leapfrog" else gompertz(2.0)


def settings_for(solver: str, num_steps: int = 20) -> dict:
    return {"solver": solver, "num_steps": None if solver in ADAPTIVE else num_steps, **TIGHT}


@pytest.mark.parametrize("solver", gd.SOLVERS)
def test_flow_is_a_semigroup(solver: str):
    """φ(0→2) = φ(1→2) ∘ φ(0→1): exactly for one-step methods on the same grid."""
    problem = problem_for(solver)
    half = settings_for(solver, 10)
    middle = gd.solve(problem.f, problem.y0, [0.0, 1.0], **half).states[-1]
    composed = gd.solve(problem.f, middle, [1.0, 2.0], **half).states[-1]
    whole = gd.solve(problem.f, problem.y0, [0.0, 2.0], **settings_for(solver)).states[-1]
    exact = solver not in (*ADAPTIVE, "adams")
    tolerance = 1e-12 if exact else 1e-4 if solver == "adams" else 1e-8
    torch.testing.assert_close(composed, whole, rtol=0, atol=tolerance)


@pytest.mark.parametrize("solver", gd.SOLVERS)
def test_flow_runs_backwards(solver: str):
    """Forward, then backward, returns to the start as far as the method is accurate."""
    problem = problem_for(solver)
    options = settings_for(solver, 100)
    there = gd.solve(problem.f, problem.y0, [0.0, 1.0], **options).states[-1]
    back = gd.solve(problem.f, there, [1.0, 0.0], **options).states[-1]
    accuracy = {"euler": 0.1, "implicit_euler": 0.1, "midpoint": 1e-3, "heun": 1e-3}
    torch.testing.assert_close(
        back, problem.y0, rtol=0, atol=accuracy.get(solver, 1e-6 if solver != "leapfrog" else 1e-13)
    )


@pytest.mark.parametrize("solver", ["trapezoid", "leapfrog"])
def test_symmetric_methods_reverse_to_rounding(solver: str):
    problem = kepler()
    options = {"solver": solver, "num_steps": 30}
    there = gd.solve(problem.f, problem.y0, [0.0, 2.0], **options).states[-1]
    back = gd.solve(problem.f, there, [2.0, 0.0], **options).states[-1]
    torch.testing.assert_close(back, problem.y0, rtol=0, atol=1e-11)


def test_leapfrog_keeps_the_energy_of_a_long_orbit():
    """Symplectic: the energy error stays bounded where a Runge–Kutta method of order 2 drifts."""
    problem = kepler(eccentricity=0.3)

    def energy(y: Tensor) -> Tensor:
        x, v = y.chunk(2, -1)
        return (v**2).sum(-1) / 2 - 1 / torch.linalg.vector_norm(x, dim=-1)

    times = torch.linspace(0.0, 60 * math.pi, 601)
    errors = {}
    for solver in ("leapfrog", "midpoint"):
        with torch.no_grad():
            solution = gd.solve(
                problem.f, problem.y0, times, solver=solver, num_steps=3000, dense=False
            )
        errors[solver] = (energy(solution.states) - energy(problem.y0)).abs()
    assert errors["leapfrog"].max() < 2e-3
    assert errors["leapfrog"][400:].max() < 1.1 * errors["leapfrog"][:200].max()
    assert errors["midpoint"][-1] > 10 * errors["leapfrog"].max()


def test_harmonic_oscillator_returns_after_a_period():
    problem = oscillator()
    solution = gd.solve(problem.f, problem.y0, [0.0, 2 * math.pi], **TIGHT)
    torch.testing.assert_close(solution.states[-1], problem.y0, rtol=0, atol=1e-8)


def test_flow_over_no_time_is_the_identity():
    flow = gd.Flow(lambda t, h, graph: h**2, solver="dopri5")
    h = torch.rand(3, 2)
    assert flow(h, None, 0.7, 0.7) is h
    assert torch.equal(flow(h, None, torch.tensor(0.7), torch.tensor(0.7)), h)


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "adjoint", "checkpoint_adjoint"])
@pytest.mark.parametrize("num_steps", [None, 4])
def test_flow_over_no_time_passes_the_gradient_through(gradient: str, num_steps: int | None):
    flow = gd.Flow(lambda t, h, graph: h**2, gradient=gradient, num_steps=num_steps)
    for end in (torch.tensor([0.5, 0.5]), torch.tensor([0.5, 1.0])):
        h = torch.rand(2, 3, 1, requires_grad=True)
        moved = flow(h, None, 0.5, end)
        assert torch.equal(moved[0], h[0])
        (pulled,) = torch.autograd.grad((2 * moved[0]).sum(), h)
        torch.testing.assert_close(pulled[0], torch.full((3, 1), 2.0))


@pytest.mark.parametrize("solver", gd.SOLVERS)
@pytest.mark.parametrize("direction", [1, -1])
def test_dense_output_agrees_with_a_fine_solve(solver: str, direction: int):
    problem = problem_for(solver)
    options = settings_for(solver, 200 if solver in ("euler", "implicit_euler") else 60)
    solution = gd.solve(problem.f, problem.y0, [0.0, direction * 1.0], **options)
    accuracy = {
        "euler": 0.02,
        "implicit_euler": 0.02,
        "midpoint": 1e-3,
        "heun": 1e-3,
        "leapfrog": 1e-3,
        "trapezoid": 1e-3,
        "rk4": 1e-6,
        "rk4_38": 1e-6,
        "adams": 1e-6,
    }
    for t in (0.123, 0.5, 0.987):
        fine = gd.solve(problem.f, problem.y0, [0.0, direction * t], solver="dopri8", **TIGHT)
        torch.testing.assert_close(
            solution.at(direction * t), fine.states[-1], rtol=0, atol=accuracy.get(solver, 1e-8)
        )


@pytest.mark.parametrize("solver", gd.SOLVERS)
def test_dense_output_passes_through_the_states(solver: str):
    problem = problem_for(solver)
    times = torch.tensor([0.0, 0.3, 1.1, 1.2, 2.0])
    solution = gd.solve(problem.f, problem.y0, times, **settings_for(solver))
    for t, state in zip(times, solution.states, strict=True):
        torch.testing.assert_close(solution.at(t), state, rtol=0, atol=1e-12)
    assert torch.equal(solution.at(0.0), problem.y0)


@pytest.mark.parametrize("solver", ["tsit5", "rk4", "leapfrog", "trapezoid", "collocation"])
def test_solution_without_kept_steps_answers_the_same(solver: str):
    """`at` solves a little once more where dense output was not kept."""
    problem = problem_for(solver)
    times = [0.0, 0.7, 2.0]
    options = settings_for(solver, 40)
    kept = gd.solve(problem.f, problem.y0, times, **options)
    again = gd.solve(problem.f, problem.y0, times, dense=False, **options)
    assert torch.equal(kept.states, again.states)
    tolerance = {"leapfrog": 1e-3, "trapezoid": 1e-3, "rk4": 1e-5}.get(solver, 1e-8)
    for t in (0.0, 0.2, 0.7, 1.5, 2.0):
        torch.testing.assert_close(again.at(t), kept.at(t), rtol=0, atol=tolerance)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "checkpoint_adjoint"])
def test_solution_with_saved_memory_answers_the_same(gradient: str):
    problem = riccati()
    y0 = problem.y0.clone().requires_grad_()
    kept = gd.solve(problem.f, y0, [0.0, 0.7, 2.0], **TIGHT)
    saved = gd.solve(problem.f, y0, [0.0, 0.7, 2.0], gradient=gradient, **TIGHT)
    for t in (0.2, 0.7, 1.5):
        torch.testing.assert_close(saved.at(t), kept.at(t), rtol=0, atol=1e-8)
        (expected,) = torch.autograd.grad(kept.at(t).sum(), y0, retain_graph=True)
        (found,) = torch.autograd.grad(saved.at(t).sum(), y0, retain_graph=True)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)


def test_dense_output_is_per_sample():
    problem = heat()
    y0 = torch.stack([problem.y0, 2 * problem.y0])
    times = torch.tensor([[0.0, 1.0], [0.5, -0.5]])
    solution = gd.solve(problem.f, y0, times, batch_dims=1, **TIGHT)
    for dense in (True, False):
        solution = gd.solve(problem.f, y0, times, batch_dims=1, dense=dense, **TIGHT)
        state = solution.at(torch.tensor([0.25, 0.25]))
        torch.testing.assert_close(state[0], problem.exact(0.25), rtol=0, atol=1e-8)
        torch.testing.assert_close(state[1], 2 * problem.exact(-0.25), rtol=0, atol=1e-8)


def test_dense_output_has_the_derivative_of_the_field():
    problem = gompertz(2.0)
    solution = gd.solve(problem.f, problem.y0, [0.0, 2.0], **TIGHT)
    t = torch.tensor(1.3, requires_grad=True)
    state = solution.at(t)
    slope = torch.stack([torch.autograd.grad(x, t, retain_graph=True)[0] for x in state])
    torch.testing.assert_close(slope, problem.f(t, state), rtol=0, atol=1e-6)


@pytest.mark.parametrize("solver", ADAPTIVE)
def test_outputs_do_not_change_the_steps(solver: str):
    """Many output times cost nothing but interpolation: same steps, same final state to the bit."""
    problem = gompertz(2.0)
    few = gd.solve(problem.f, problem.y0, [0.0, 2.0], solver=solver)
    many = gd.solve(problem.f, problem.y0, torch.linspace(0.0, 2.0, 57), solver=solver)
    assert torch.equal(few.states[-1], many.states[-1])
    assert few.stats.accepted == many.stats.accepted
    assert few.stats.rejected == many.stats.rejected
    # dopri8 adds three stages to a step that holds an output between its ends.
    extra = 3 * int(many.stats.accepted) if solver == "dopri8" else 0
    assert few.stats.evaluations + extra == many.stats.evaluations


@pytest.mark.parametrize("solver", [*FIXED, *ADAPTIVE])
def test_num_steps_counts_steps_over_the_whole_span(solver: str):
    """… whatever the output times, and without error control for adaptive methods."""
    problem = problem_for(solver)
    states = []
    for times in ([0.0, 2.0], [0.0, 0.1, 0.11, 2.0], list(torch.linspace(0.0, 2.0, 30).numpy())):
        solution = gd.solve(problem.f, problem.y0, times, solver=solver, num_steps=7)
        assert solution.stats.accepted == 7
        assert solution.stats.rejected == 0
        states.append(solution.states[-1])
    assert torch.equal(states[0], states[1])
    assert torch.equal(states[0], states[2])


@pytest.mark.parametrize(
    ("solver", "evaluations"),
    [
        ("euler", 10),
        ("midpoint", 20),
        ("heun", 20),
        ("rk4", 40),
        ("rk4_38", 40),
        ("adams", 1 + 3 * 4 + 7 * 2),
        ("leapfrog", 11),
        ("bosh3", 31),
        ("dopri5", 61),
        ("tsit5", 61),
        ("dopri8", 121),
    ],
)
def test_evaluations_are_what_the_method_needs(solver: str, evaluations: int):
    problem = problem_for(solver)
    calls = 0

    def f(t: Tensor, y: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return problem.f(t, y)

    solution = gd.solve(f, problem.y0, [0.0, 1.0], solver=solver, num_steps=10)
    assert solution.stats.evaluations == evaluations
    assert solution.stats.field_calls == calls == evaluations


@pytest.mark.parametrize("solver", [*FIXED, *ADAPTIVE])
def test_field_calls_are_all_calls(solver: str):
    problem = problem_for(solver)
    calls = 0

    def f(t: Tensor, y: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return problem.f(t, y)

    times = torch.linspace(0.0, 1.0, 6)
    solution = gd.solve(f, problem.y0, times, **settings_for(solver, 4))
    assert solution.stats.field_calls == calls == solution.stats.evaluations


def test_step_size_is_another_way_to_say_num_steps():
    problem = riccati()
    for step_size, num_steps in ((0.25, 4), (0.3, 4), (0.1, 10), (2.0, 1)):
        by_size = gd.solve(problem.f, problem.y0, [0.0, 1.0], solver="rk4", step_size=step_size)
        by_number = gd.solve(problem.f, problem.y0, [0.0, 1.0], solver="rk4", num_steps=num_steps)
        assert torch.equal(by_size.states, by_number.states)


def test_first_state_is_the_start_to_the_bit():
    y0 = torch.rand(4)
    for solver in gd.SOLVERS:
        if solver != "leapfrog":
            solution = gd.solve(lambda t, y: -y, y0, [0.0, 1.0], **settings_for(solver))
            assert torch.equal(solution.states[0], y0)


@pytest.mark.parametrize(
    "control",
    [
        gd.StepControl(),
        gd.StepControl(proportional=0.4, integral=0.3),
        gd.StepControl(proportional=0.3, integral=0.3, derivative=0.05),
    ],
)
def test_every_controller_holds_the_tolerance(control: gd.StepControl):
    problem = kepler()
    solution = gd.solve(
        problem.f, problem.y0, [0.0, problem.t1], rtol=1e-8, atol=1e-8, control=control
    )
    assert problem.error(solution.states[-1]) < 1e-6
    assert solution.stats.rejected <= 0.3 * solution.stats.accepted


@pytest.mark.parametrize("solver", [*ADAPTIVE, "rk4", "adams", "leapfrog", "collocation"])
def test_inference_mode_changes_nothing(solver: str):
    problem = problem_for(solver)
    expected = gd.solve(problem.f, problem.y0, [0.0, 0.4, 1.0], **settings_for(solver))
    with torch.inference_mode():
        found = gd.solve(problem.f, problem.y0, [0.0, 0.4, 1.0], **settings_for(solver))
        torch.testing.assert_close(found.at(0.7), expected.at(0.7), rtol=0, atol=1e-12)
    torch.testing.assert_close(found.states, expected.states, rtol=0, atol=1e-12)
