"""The relaxed spectral objective: zero on solutions, differentiable, enough to train a field."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck

import graphode as gd
from graphode.flows.chebyshev import basis_derivative, integration_matrix, lobatto_nodes
from tests.problems import gompertz, oscillator, riccati


def series_of(problem, degree: int) -> Tensor:
    return gd.spectral_coefficients(
        lambda times: torch.stack([problem.exact(float(t)) for t in times]),
        degree,
        problem.t0,
        problem.t1,
    )


@pytest.mark.parametrize("problem", [gompertz(3.0), oscillator(), riccati()], ids=lambda p: p.name)
def test_residual_of_the_solution_vanishes(problem):
    """… geometrically with the degree of the series."""
    residuals = [
        gd.spectral_residual(
            problem.f, series_of(problem, degree), problem.t0, problem.t1, y0=problem.y0
        ).item()
        for degree in (6, 12, 36)
    ]
    assert residuals[0] > 10 * residuals[1] > 1e4 * residuals[2]
    assert residuals[2] < 1e-20


def test_series_is_the_function_it_was_made_from():
    problem = gompertz(3.0)
    series = series_of(problem, 30)
    times = torch.linspace(0.0, 3.0, 7)
    exact = torch.stack([problem.exact(float(t)) for t in times])
    torch.testing.assert_close(
        gd.spectral_states(series, times, 0.0, 3.0), exact, rtol=0, atol=1e-12
    )


def test_residual_is_the_integral_of_the_squared_gap():
    """x = t on [0, 2] against x′ = 0, x(0) = 3: ∫ 1 dt + 9."""
    series = gd.spectral_coefficients(lambda t: t[:, None], 4, 0.0, 2.0)
    residual = gd.spectral_residual(
        lambda t, x: torch.zeros_like(x), series, 0.0, 2.0, y0=torch.tensor([3.0])
    )
    assert residual.item() == pytest.approx(2 + 9, abs=1e-12)


def test_residual_is_per_sample():
    problem = oscillator()
    series = series_of(problem, 24)
    shifted = 2 * series
    shifted[0] += 0.1
    both = torch.stack([series, shifted], 1)
    residual = gd.spectral_residual(problem.f, both, 0.0, problem.t1, batch_dims=1)
    assert residual.shape == (2,)
    assert residual[0] < 1e-12
    # The constant 0.1 misses both x′ = v and v′ = −x by 0.1.
    assert residual[1].item() == pytest.approx(2 * 0.1**2 * problem.t1, rel=1e-6)


def test_residual_has_gradients_to_series_parameters_and_arguments():
    weight = torch.randn(2, 2, requires_grad=True)
    shift = torch.randn(2, requires_grad=True)
    series = torch.randn(5, 2, requires_grad=True)
    y0 = torch.randn(2, requires_grad=True)

    def residual(series: Tensor, weight: Tensor, shift: Tensor, y0: Tensor) -> Tensor:
        def f(t: Tensor, x: Tensor, shift: Tensor) -> Tensor:
            return torch.tanh(x @ weight) + t * shift

        return gd.spectral_residual(f, series, 0.0, 1.0, args=(shift,), y0=y0)

    assert gradcheck(residual, (series, weight, shift, y0))


def test_minimising_over_the_series_solves_the_equation():
    problem = riccati()
    series = torch.zeros(16, 1, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [series], max_iter=300, tolerance_grad=1e-12, tolerance_change=1e-16,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = gd.spectral_residual(problem.f, series, 0.0, 2.0, y0=problem.y0)
        loss.backward()
        return loss

    optimizer.step(closure)
    end = gd.spectral_states(series.detach(), torch.tensor([2.0]), 0.0, 2.0)[0]
    assert problem.error(end) < 1e-4


@pytest.mark.usefixtures("without_type_checks")
def test_linear_field_is_recovered_without_any_solve():
    """Data on a trajectory, series and matrix trained together: the matrix is found."""
    matrix = torch.tensor([[-0.1, 1.0], [-1.0, -0.1]])
    start = torch.tensor([1.0, 0.0])
    times = torch.linspace(0.0, 4.0, 40)
    data = torch.stack([torch.matrix_exp(t * matrix) @ start for t in times])
    field = nn.Linear(2, 2, bias=False)
    nn.init.zeros_(field.weight)
    series = torch.zeros(16, 2, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [series, field.weight], max_iter=200, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        fit = (gd.spectral_states(series, times, 0.0, 4.0) - data).square().sum()
        loss = fit + gd.spectral_residual(lambda t, x: field(x), series, 0.0, 4.0)
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(field.weight.detach(), matrix, rtol=0, atol=1e-3)


def test_errors_name_the_remedy():
    series = torch.zeros(5, 2)
    with pytest.raises(ValueError, match=r"`t0` and `t1` must differ"):
        gd.spectral_residual(lambda t, x: x, series, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"at least two terms"):
        gd.spectral_residual(lambda t, x: x, series[:1], 0.0, 1.0)
    with pytest.raises(ValueError, match=r"`nodes` must be at least 3"):
        gd.Collocation(nodes=2)


def test_chebyshev_calculus_is_exact_on_polynomials():
    nodes = lobatto_nodes(9)
    for power in range(9):
        integral = integration_matrix(nodes) @ nodes**power
        assert integral == pytest.approx(nodes ** (power + 1) / (power + 1), abs=1e-14)
    # T₂(2x − 1) = 8x² − 8x + 1
    assert basis_derivative(nodes, 2)[:, 2] == pytest.approx(16 * nodes - 8, abs=1e-12)
    assert nodes[0] == 0
    assert nodes[-1] == pytest.approx(1, abs=1e-15)
    assert math.isclose(nodes[4], 0.5)
