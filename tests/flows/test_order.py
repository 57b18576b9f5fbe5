"""Every solver, and every dense output, converges at the order it claims."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

import graphode as gd
from tests.problems import Problem, gompertz, heat, kepler, wave

pytestmark = pytest.mark.usefixtures("without_type_checks")

ORDERS = {
    "euler": 1,
    "midpoint": 2,
    "heun": 2,
    "rk4": 4,
    "rk4_38": 4,
    "adams": 4,
    "leapfrog": 2,
    "bosh3": 3,
    "dopri5": 5,
    "tsit5": 5,
    "dopri8": 8,
    "implicit_euler": 1,
    "trapezoid": 2,
}
# Where the fits begin and how often the steps are halved. dopri5 and tsit5 have so small a leading
# coefficient that coarse steps would show the order of the next one; adams needs a long history.
RANGES = {
    "euler": (32, 3),
    "adams": (64, 2),
    "bosh3": (32, 3),
    "dopri5": (45, 3),
    "tsit5": (45, 3),
    "dopri8": (11, 2),
    "implicit_euler": (16, 2),
    "trapezoid": (32, 2),
}


def slope(sizes: np.ndarray, errors: np.ndarray, floor: float = 1e-12) -> float:
    """Of log error against log size, fitted where floor < error < 1e-2."""
    fit = (errors > floor) & (errors < 1e-2)
    assert fit.sum() >= 4, f"Too few points to fit: {errors}"
    return float(np.polyfit(np.log(sizes[fit]), np.log(errors[fit]), 1)[0])


def step_counts(start: int, halvings: int) -> list[int]:
    """Two counts an octave."""
    return [round(start * 2 ** (half / 2)) for half in range(2 * halvings + 1)]


def measured_order(problem: Problem, solver: str, counts: list[int]) -> float:
    errors = []
    for num_steps in counts:
        with torch.no_grad():
            solution = gd.solve(
                problem.f,
                problem.y0,
                [problem.t0, problem.t1],
                solver=solver,
                num_steps=num_steps,
                dense=False,
            )
        errors.append(problem.error(solution.states[-1]))
    return slope(1 / np.array(counts), np.array(errors))


def test_every_solver_is_measured():
    assert set(ORDERS) | {"collocation"} == set(gd.SOLVERS)


@pytest.mark.parametrize("solver", ORDERS)
def test_solver_converges_at_its_order_on_graph_heat(solver: str):
    # Heat is no second-order equation; waves are leapfrog's linear problem on a graph.
    problem = wave() if solver == "leapfrog" else heat()
    counts = step_counts(2, 2) if solver == "dopri8" else step_counts(16, 2)
    assert measured_order(problem, solver, counts) >= ORDERS[solver] - 0.2


@pytest.mark.parametrize("solver", ORDERS)
def test_solver_converges_at_its_order_on_a_nonlinear_problem(solver: str):
    # A first-order method would need thousands of steps for a long span.
    problem = gompertz(1.0 if ORDERS[solver] == 1 else 10.0)
    if solver == "leapfrog":
        problem = kepler()
    counts = step_counts(*RANGES.get(solver, (64, 3)))
    assert measured_order(problem, solver, counts) == pytest.approx(ORDERS[solver], abs=0.2)


@pytest.mark.parametrize(
    ("solver", "order", "longest"),
    [
        ("bosh3", 3, 0.4),
        ("dopri5", 4, 0.14),
        ("tsit5", 4, 0.1),
        ("dopri8", 7, 1.1),
        ("rk4", 3, 0.05),
        ("heun", 2, 0.4),
    ],
)
@pytest.mark.parametrize("theta", [0.3, 0.5, 0.8])
def test_dense_output_has_its_published_order(
    solver: str, order: int, longest: float, theta: float
):
    """Inside one step the error falls as dt to the order plus one."""
    problem = gompertz()
    sizes = longest * 2.0 ** -np.arange(0.0, 3.5, 0.5)
    errors = []
    for size in sizes:
        solution = gd.solve(problem.f, problem.y0, [0.0, size], solver=solver, num_steps=1)
        errors.append(problem.error(solution.at(theta * size), theta * size))
    # One step rounds only once.
    measured = slope(sizes, np.array(errors), floor=1e-14)
    assert measured == pytest.approx(order + 1, abs=0.2)


@pytest.mark.parametrize("solver", ["adams", "leapfrog", "implicit_euler", "trapezoid"])
def test_dense_output_is_as_accurate_as_the_steps(solver: str):
    problem = kepler(t1=1.0) if solver == "leapfrog" else gompertz(1.0)
    counts = step_counts(16, 3) if solver == "adams" else step_counts(8, 2)
    moment, errors = math.sqrt(0.3), []
    for num_steps in counts:
        with torch.no_grad():
            solution = gd.solve(
                problem.f, problem.y0, [0.0, 1.0], solver=solver, num_steps=num_steps
            )
        errors.append(problem.error(solution.at(moment), moment))
    assert slope(1 / np.array(counts), np.array(errors)) >= ORDERS[solver] - 0.5


def test_collocation_converges_faster_than_any_power():
    """The error falls geometrically with the nodes, down to rounding."""
    problem = gompertz(2.0)
    nodes = list(range(3, 16))
    errors = []
    for count in nodes:
        method = gd.Collocation(nodes=count, rtol=1e-14, atol=1e-14)
        with torch.no_grad():
            solution = gd.solve(problem.f, problem.y0, [0.0, 2.0], solver=method, num_steps=1)
        errors.append(problem.error(solution.states[-1]))
    assert errors[-1] < 1e-13
    falling = np.array([error for error in errors if error > 1e-12])
    assert len(falling) >= 5
    # Geometric: log error is straight in the number of nodes, where a power of it would bend up.
    rate = np.polyfit(np.array(nodes[: len(falling)]), np.log10(falling), 1)[0]
    assert rate < -0.5
    local_powers = -np.diff(np.log(falling)) / np.diff(np.log(nodes[: len(falling)]))
    assert local_powers[-1] > 1.5 * local_powers[0]


def test_collocation_elements_converge_too():
    """n nodes make a method of order n or more at the ends of elements."""
    problem = gompertz(2.0)
    method = gd.Collocation(nodes=6, rtol=1e-14, atol=1e-14)
    errors = []
    for num_steps in (1, 2, 4):
        with torch.no_grad():
            solution = gd.solve(
                problem.f, problem.y0, [0.0, 2.0], solver=method, num_steps=num_steps
            )
        errors.append(problem.error(solution.states[-1]))
    assert errors[0] > 2**5 * errors[1] > 2**10 * errors[2]


@pytest.mark.parametrize("solver", ["bosh3", "dopri5", "tsit5", "dopri8"])
def test_error_follows_the_tolerance(solver: str):
    problem = kepler()
    errors = []
    for tolerance in (1e-4, 1e-6, 1e-8, 1e-10):
        with torch.no_grad():
            solution = gd.solve(
                problem.f,
                problem.y0,
                [0.0, problem.t1],
                solver=solver,
                rtol=tolerance,
                atol=tolerance,
            )
        errors.append(problem.error(solution.states[-1]))
        assert errors[-1] < 1000 * tolerance
    assert all(a > 5 * b for a, b in pairwise(errors))
