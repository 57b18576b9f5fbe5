"""Initial value problems whose solutions are known: what tests and benchmarks measure against."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

Field = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Problem:
    """dy/dt = f(t, y), y(t0) = y0, with `exact(t)`, the solution at any time between t0 and t1.

    Every field works on the last dimensions, so that leading ones may be a batch.
    """

    name: str
    f: Field
    y0: Tensor
    t0: float
    t1: float
    exact: Callable[[float], Tensor]

    def error(self, y: Tensor, t: float | None = None) -> float:
        """Largest distance of `y` from the solution at `t` (default: the end)."""
        return (y - self.exact(self.t1 if t is None else t)).abs().max().item()


def _vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def exponential(matrix: Tensor) -> Tensor:
    """exp(matrix) by SciPy: torch's is wrong in the 12th digit for norms near 0.04."""
    return torch.from_numpy(scipy.linalg.expm(matrix.numpy()))


def ring_laplacian(nodes: int, chord: bool = True) -> Tensor:
    """L = D − A of a ring, by default with one chord, so that no symmetry hides an error."""
    adjacency = torch.zeros(nodes, nodes, dtype=torch.float64)
    for node in range(nodes):
        adjacency[node, (node + 1) % nodes] = adjacency[(node + 1) % nodes, node] = 1
    if chord:
        adjacency[0, nodes // 2] = adjacency[nodes // 2, 0] = 1
    return torch.diag(adjacency.sum(1)) - adjacency


def heat(nodes: int = 5, channels: int = 2, t1: float = 1.0) -> Problem:
    """Heat on a graph, h′ = −L h; h = exp(−t L) h0."""
    laplacian = ring_laplacian(nodes)
    generator = torch.Generator().manual_seed(0)
    h0 = torch.rand(nodes, channels, dtype=torch.float64, generator=generator)
    return Problem(
        "heat",
        lambda t, h: -(laplacian @ h),
        h0,
        0.0,
        t1,
        lambda t: exponential(-t * laplacian) @ h0,
    )


def wave(nodes: int = 5, t1: float = 1.0) -> Problem:
    """Waves on a graph, x″ = −L x, state (x, v) along the channels."""
    laplacian = ring_laplacian(nodes)
    zero, one = torch.zeros_like(laplacian), torch.eye(nodes, dtype=torch.float64)
    generator = torch.cat([torch.cat([zero, one], 1), torch.cat([-laplacian, zero], 1)])
    h0 = torch.rand(nodes, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def exact(t: float) -> Tensor:
        flat = exponential(t * generator) @ torch.cat([h0[:, 0], h0[:, 1]])
        return torch.stack(flat.chunk(2), -1)

    return Problem(
        "wave",
        lambda t, h: torch.cat([h[..., 1:], -(laplacian @ h[..., :1])], -1),
        h0,
        0.0,
        t1,
        exact,
    )


def logistic() -> Problem:
    """y′ = y (1 − y), y(0) = 1/10: y = 1 / (1 + 9 exp(−t))."""
    return Problem(
        "logistic",
        lambda t, y: y * (1 - y),
        _vector(0.1),
        0.0,
        4.0,
        lambda t: _vector(1 / (1 + 9 * math.exp(-t))),
    )


def gompertz(t1: float = 10.0) -> Problem:
    """y′ = y ∘ (B log y) with Bᵀ = −B, which never settles: y = exp(exp(t B) log y0)."""
    generator = torch.Generator().manual_seed(1)
    matrix = torch.randn(4, 4, dtype=torch.float64, generator=generator)
    matrix = (matrix - matrix.T) / 2
    log_y0 = 0.3 * torch.randn(4, dtype=torch.float64, generator=generator)
    return Problem(
        "gompertz",
        lambda t, y: y * (torch.log(y) @ matrix.T),
        torch.exp(log_y0),
        0.0,
        t1,
        lambda t: torch.exp(exponential(t * matrix) @ log_y0),
    )


def modulated() -> Problem:
    """y′ = y cos t, linear and not autonomous: y = exp(sin t)."""
    return Problem(
        "modulated",
        lambda t, y: y * torch.cos(t),
        _vector(1.0),
        0.0,
        3.0,
        lambda t: _vector(math.exp(math.sin(t))),
    )


def riccati() -> Problem:
    """y′ = −2 t y², y(0) = 1: y = 1 / (1 + t²). Nonlinear and not autonomous."""
    return Problem(
        "riccati",
        lambda t, y: -2 * t * y**2,
        _vector(1.0),
        0.0,
        2.0,
        lambda t: _vector(1 / (1 + t**2)),
    )


def relaxation(t: Tensor, y: Tensor, rate: Tensor) -> Tensor:
    """A field: nonlinear, not autonomous, and as stiff as its rate."""
    return rate * (torch.cos(3 * t) - y - 0.3 * torch.sin(y))


def stiff(rate: float = 1000.0) -> Problem:
    """y′ = −rate (y − cos t) − sin t, y(0) = 2: y = cos t + exp(−rate t)."""
    return Problem(
        "stiff",
        lambda t, y: -rate * (y - torch.cos(t)) - torch.sin(t),
        _vector(2.0),
        0.0,
        1.0,
        lambda t: _vector(math.cos(t) + math.exp(-rate * t)),
    )


def oscillator(frequency: float = 1.0, t1: float = 2 * math.pi) -> Problem:
    """x″ = −ω² x from (1, 0): x = cos ωt, v = −ω sin ωt."""
    return Problem(
        "oscillator",
        lambda t, y: torch.cat([y[..., 1:], -(frequency**2) * y[..., :1]], -1),
        _vector(1.0, 0.0),
        0.0,
        t1,
        lambda t: _vector(math.cos(frequency * t), -frequency * math.sin(frequency * t)),
    )


def kepler(eccentricity: float = 0.3, t1: float = 4.0) -> Problem:
    """A planet at distance 1 − e from its sun, x″ = −x/|x|³; state (x, y, vx, vy).

    Kepler: with E − e sin E = t, x = cos E − e and y = √(1 − e²) sin E.
    """
    minor = math.sqrt(1 - eccentricity**2)

    def f(t: Tensor, y: Tensor) -> Tensor:
        position, velocity = y.chunk(2, -1)
        distance = torch.linalg.vector_norm(position, dim=-1, keepdim=True)
        return torch.cat([velocity, -position / distance**3], -1)

    def exact(t: float) -> Tensor:
        anomaly = t
        for _ in range(50):
            miss = anomaly - eccentricity * math.sin(anomaly) - t
            anomaly -= miss / (1 - eccentricity * math.cos(anomaly))
        sin, cos = math.sin(anomaly), math.cos(anomaly)
        rate = 1 / (1 - eccentricity * cos)
        return _vector(cos - eccentricity, minor * sin, -rate * sin, rate * minor * cos)

    return Problem("kepler", f, exact(0.0), 0.0, t1, exact)


def lotka_volterra() -> Problem:
    """Hares and lynxes: x′ = x (3/2 − y), y′ = y (x − 3)."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        hares, lynxes = y[..., :1], y[..., 1:]
        return torch.cat([hares * (1.5 - lynxes), lynxes * (hares - 3)], -1)

    return _referenced("lotka_volterra", f, _vector(4.0, 1.0), 6.0)


def van_der_pol(damping: float = 2.0) -> Problem:
    """x″ = μ (1 − x²) x′ − x, from (2, 0)."""

    def f(t: Tensor, y: Tensor) -> Tensor:
        x, v = y[..., :1], y[..., 1:]
        return torch.cat([v, damping * (1 - x**2) * v - x], -1)

    return _referenced("van_der_pol", f, _vector(2.0, 0.0), 8.0)


def random_convolution(nodes: int = 12, channels: int = 4) -> Problem:
    """h′ = tanh(Â h W₁) W₂ on a ring with a chord and random weights."""
    adjacency = -ring_laplacian(nodes).fill_diagonal_(-1)
    degree = adjacency.sum(1).rsqrt()
    normalized = degree[:, None] * adjacency * degree
    generator = torch.Generator().manual_seed(2)
    weights = torch.randn(3, channels, channels, dtype=torch.float64, generator=generator)
    first, second = 1.5 * weights[0], weights[1]
    h0 = torch.randn(nodes, channels, dtype=torch.float64, generator=generator)

    def f(t: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(normalized @ (h @ first)) @ second

    return _referenced("random_convolution", f, h0, 2.0)


def _referenced(name: str, f: Field, y0: Tensor, t1: float) -> Problem:
    """A problem whose solution is SciPy's DOP853 at a tolerance of 1e-13."""

    def flat(t: float, y: np.ndarray) -> np.ndarray:
        moment = torch.tensor(t, dtype=torch.float64)
        return f(moment, torch.from_numpy(y.copy()).reshape(y0.shape)).reshape(-1).numpy()

    def exact(t: float) -> Tensor:
        if t == 0:
            return y0
        found = solve_ivp(
            flat, (0.0, t), y0.reshape(-1).numpy(), method="DOP853", rtol=1e-13, atol=1e-14
        )
        return torch.from_numpy(found.y[:, -1].copy()).reshape(y0.shape)

    return Problem(name, f, y0, 0.0, t1, exact)


def smooth_problems() -> list[Problem]:
    """Problems any solver of order 2 or more can follow."""
    return [
        heat(),
        logistic(),
        gompertz(5.0),
        modulated(),
        riccati(),
        oscillator(),
        kepler(),
        lotka_volterra(),
        van_der_pol(),
        random_convolution(),
    ]
