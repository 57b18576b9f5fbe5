"""Agreement with SciPy and torchdiffeq, on problems whose solutions are known besides."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torchdiffeq
from scipy.integrate import solve_ivp
from torch import Tensor

import graphode as gd
from graphode.flows.control import TORCHDIFFEQ, StepControl
from tests.problems import (
    Problem,
    gompertz,
    heat,
    kepler,
    lotka_volterra,
    oscillator,
    random_convolution,
    riccati,
    smooth_problems,
    van_der_pol,
)

RIVAL_PROBLEMS = [heat(), gompertz(5.0), riccati(), kepler(), lotka_volterra(), van_der_pol()]


def by_name(problem: Problem) -> str:
    return problem.name


def flat(problem: Problem):
    """The field as SciPy calls it."""

    def f(t: float, y: np.ndarray) -> np.ndarray:
        state = torch.from_numpy(y.copy()).reshape(problem.y0.shape)
        return problem.f(torch.tensor(t), state).reshape(-1).numpy()

    return f


@pytest.mark.parametrize("problem", smooth_problems(), ids=by_name)
@pytest.mark.parametrize("solver", ["dopri5", "tsit5", "dopri8"])
def test_adaptive_solvers_find_the_solution(problem: Problem, solver: str):
    middle = (problem.t0 + problem.t1) / 2
    solution = gd.solve(
        problem.f,
        problem.y0,
        [problem.t0, middle, problem.t1],
        solver=solver,
        rtol=1e-10,
        atol=1e-10,
    )
    assert problem.error(solution.states[1], middle) < 1e-7
    assert problem.error(solution.states[2]) < 1e-7


@pytest.mark.parametrize(
    ("solver", "theirs"), [("bosh3", "RK23"), ("dopri5", "RK45"), ("dopri8", "DOP853")]
)
@pytest.mark.parametrize("problem", RIVAL_PROBLEMS, ids=by_name)
def test_same_method_as_scipy_gives_the_same_solution(problem: Problem, solver: str, theirs: str):
    tolerance = 1e-6 if solver == "bosh3" else 1e-10
    times = np.linspace(problem.t0, problem.t1, 7)
    expected = solve_ivp(
        flat(problem),
        (problem.t0, problem.t1),
        problem.y0.reshape(-1).numpy(),
        method=theirs,
        t_eval=times,
        rtol=tolerance,
        atol=tolerance,
    )
    found = gd.solve(
        problem.f, problem.y0, times, solver=solver, rtol=tolerance, atol=tolerance, dense=False
    )
    reference = torch.from_numpy(expected.y.T.copy()).reshape(found.states.shape)
    torch.testing.assert_close(found.states, reference, rtol=0, atol=500 * tolerance)
    # The controllers differ in detail, the effort must not.
    assert found.stats.evaluations <= 1.4 * expected.nfev + 20


@pytest.mark.parametrize("solver", ["dopri5", "bosh3", "dopri8"])
@pytest.mark.parametrize("problem", RIVAL_PROBLEMS, ids=by_name)
def test_same_method_as_torchdiffeq_gives_the_same_solution(problem: Problem, solver: str):
    tolerance = 1e-6 if solver == "bosh3" else 1e-9
    times = torch.linspace(problem.t0, problem.t1, 5)
    expected = torchdiffeq.odeint(
        problem.f, problem.y0, times, method=solver, rtol=tolerance, atol=tolerance
    )
    found = gd.solve(
        problem.f, problem.y0, times, solver=solver, rtol=tolerance, atol=tolerance, dense=False
    )
    # They interpolate dopri8 by a quartic, of far lower order than its steps.
    agreement = 1e-5 if solver == "dopri8" else 1000 * tolerance
    torch.testing.assert_close(found.states, expected, rtol=0, atol=agreement)


@pytest.mark.parametrize(
    ("solver", "theirs"), [("euler", "euler"), ("midpoint", "midpoint"), ("rk4_38", "rk4")]
)
@pytest.mark.parametrize(
    "problem", [heat(), riccati(), oscillator(), random_convolution()], ids=by_name
)
def test_same_fixed_steps_as_torchdiffeq_give_the_same_states_to_rounding(
    problem: Problem, solver: str, theirs: str
):
    # torchdiffeq takes one step between two output times unless told otherwise.
    times = torch.linspace(problem.t0, problem.t1, 33)
    expected = torchdiffeq.odeint(problem.f, problem.y0, times, method=theirs)
    found = gd.solve(problem.f, problem.y0, times, solver=solver, num_steps=32)
    torch.testing.assert_close(found.states, expected, rtol=1e-12, atol=1e-13)


def test_classical_rk4_is_not_torchdiffeqs():
    problem = riccati()
    times = torch.linspace(0.0, 2.0, 9)
    expected = torchdiffeq.odeint(problem.f, problem.y0, times, method="rk4")
    classical = gd.solve(problem.f, problem.y0, times, solver="rk4", num_steps=8)
    assert (classical.states - expected).abs().max() > 1e-6


def test_gradients_agree_with_torchdiffeq():
    problem = random_convolution()
    times = torch.linspace(0.0, 1.0, 4)
    scale = torch.tensor(0.7, requires_grad=True)

    def f(t: Tensor, y: Tensor) -> Tensor:
        return scale * problem.f(t, y)

    y0 = problem.y0.clone().requires_grad_()
    tolerances = {"rtol": 1e-10, "atol": 1e-10}
    expected = torchdiffeq.odeint(f, y0, times, method="dopri5", **tolerances)
    found = gd.solve(f, y0, times, solver="dopri5", **tolerances).states
    weights = torch.randn_like(found)
    theirs = torch.autograd.grad((weights * expected).sum(), (y0, scale))
    ours = torch.autograd.grad((weights * found).sum(), (y0, scale))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("problem", RIVAL_PROBLEMS, ids=by_name)
@pytest.mark.parametrize("tolerance", [1e-3, 1e-6])
def test_dopri5_needs_no_more_than_torchdiffeq_at_the_same_tolerance(
    problem: Problem, tolerance: float
):
    """The benchmark compares at equal error; here only nothing may go badly wrong."""
    calls = 0

    def f(t: Tensor, y: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return problem.f(t, y)

    times = torch.tensor([problem.t0, problem.t1])
    tolerances = {"rtol": tolerance, "atol": tolerance}
    torchdiffeq.odeint(f, problem.y0, times, method="dopri5", **tolerances)
    found = gd.solve(problem.f, problem.y0, times, solver="dopri5", **tolerances)
    assert found.stats.evaluations <= 1.4 * calls


@pytest.mark.filterwarnings("ignore:The field draws random numbers")
def test_noise_costs_as_many_evaluations_as_in_torchdiffeq():
    """Its estimate is two thirds of ours, and it never shortens a step after an accepted one."""
    h, weight = torch.randn(300, 20), torch.randn(20, 20) / 20**0.5

    def evaluations(solve: Callable[[Callable[..., Tensor]], object]) -> int:
        count = 0

        def f(t: Tensor, y: Tensor) -> Tensor:
            nonlocal count
            count += 1
            return torch.nn.functional.dropout(y, 0.9) @ weight

        solve(f)
        return count

    def ours(control: StepControl | None) -> int:
        options: Any = {"solver": "dopri5", "rtol": 1.5e-2, "atol": 1.5e-3, "control": control}
        return evaluations(lambda f: gd.solve(f, h, [0.0, 1.0], **options))

    times = torch.tensor([0.0, 1.0])
    options = {"method": "dopri5", "rtol": 1e-2, "atol": 1e-3}
    theirs = evaluations(lambda f: torchdiffeq.odeint(f, h, times, **options))
    assert theirs > 200
    assert ours(TORCHDIFFEQ) == pytest.approx(theirs, rel=0.05)
    assert ours(None) > 1.15 * theirs
