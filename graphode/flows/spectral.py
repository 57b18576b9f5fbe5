"""Training a field without solving it: the relaxed spectral objective.

A trajectory is a Chebyshev series x(t) = Σ_m c_m T_m(2 (t − t0)/(t1 − t0) − 1). Instead of solving
x′ = f(t, x; θ), its residual is penalised,

    R(c, θ) = ∫ ‖x′(t) − f(t, x(t); θ)‖² dt + ‖x(t0) − y0‖²,

and minimised over coefficients c and parameters θ together with the loss on x. All quadrature
points are independent of each other: no step waits for the one before.

Quaglino, Gallieri, Masci, Koutník (2020), "SNODE: Spectral discretization of neural ODEs for
system identification". Theirs is a Legendre series; the objective does not depend on the basis.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from graphode.flows.chebyshev import basis, basis_derivative, gauss_legendre, lobatto_nodes
from graphode.flows.host import on_host
from graphode.flows.layout import Layout


def spectral_states(
    coefficients: Float[Tensor, "terms *state"], times: Float[Tensor, "time"], t0: float, t1: float
) -> Float[Tensor, "time *state"]:
    """The series at `times`."""
    points = (on_host(times) - t0) / (t1 - t0)
    return _apply(basis(points, len(coefficients) - 1), coefficients)


def spectral_coefficients(
    f: Callable[[Float[Tensor, "time"]], Float[Tensor, "time *state"]],
    degree: int,
    t0: float,
    t1: float,
    dtype: torch.dtype | None = None,
) -> Float[Tensor, "terms *state"]:
    """The series of degree `degree` through `f` at the Chebyshev nodes of [t0, t1]."""
    nodes = lobatto_nodes(degree + 1)
    times = torch.as_tensor(t0 + (t1 - t0) * nodes, dtype=dtype or torch.get_default_dtype())
    return _apply(np.linalg.inv(basis(nodes, degree)), f(times))


def spectral_residual(
    f: Callable[..., Tensor],
    coefficients: Float[Tensor, "terms *state"],
    t0: float,
    t1: float,
    *,
    args: tuple[Any, ...] = (),
    y0: Float[Tensor, "*state"] | None = None,
    num_points: int | None = None,
    batch_dims: int = 0,
) -> Float[Tensor, "*batch"]:
    """How far a Chebyshev series is from solving dx/dt = f(t, x, *args).

        R = ∫ ‖x′(t) − f(t, x(t))‖² dt + ‖x(t0) − y0‖²

    Args:
        f: The field; it is called once per quadrature point.
        coefficients: The series, term first.
        t0: Start of the interval.
        t1: End of the interval.
        args: Further arguments of the field.
        y0: Where the series should start; without it R has no second term.
        num_points: Gauss–Legendre points; default twice the number of terms.
        batch_dims: Leading dimensions of the state that are samples.

    Returns:
        R per sample, with gradients to coefficients, parameters and arguments.
    """
    if t0 == t1:
        raise ValueError(
            f"`t0` and `t1` must differ, but both are {t0}. Give the interval of the series."
        )
    if len(coefficients) < 2:
        raise ValueError(
            f"`coefficients` must hold at least two terms along its first dimension, but has "
            f"shape {tuple(coefficients.shape)}. A constant cannot follow a field."
        )
    layout = Layout.of(coefficients[0], batch_dims)
    points, weights = gauss_legendre(num_points or 2 * len(coefficients))
    degree = len(coefficients) - 1
    states = _apply(basis(points, degree), coefficients)
    slopes = _apply(basis_derivative(points, degree) / (t1 - t0), coefficients)
    total = torch.zeros(layout.batch_shape, dtype=coefficients.dtype, device=coefficients.device)
    for point, weight, state, slope in zip(points, weights, states, slopes, strict=True):
        t = layout.field_time(float(t0 + point * (t1 - t0)))
        gap = slope - f(t, state, *args)
        total = total + float(weight * abs(t1 - t0)) * layout.dot(gap, gap)
    if y0 is not None:
        gap = _apply(basis(np.zeros(1), degree), coefficients)[0] - y0
        total = total + layout.dot(gap, gap)
    return total


def _apply(matrix: np.ndarray, values: Tensor) -> Tensor:
    """matrix @ values along the first dimension."""
    return torch.tensordot(torch.from_numpy(matrix).to(values.device, values.dtype), values, dims=1)
