"""Spectral collocation: a polynomial per element that satisfies the equation at Chebyshev nodes.

    Y_i = y + dt Σ_j S_ij f(t + τ_j dt, Y_j),   S = integration matrix of the nodes τ

The fixed point is found by Picard iteration with Anderson acceleration, for all nodes at once;
`num_steps` counts elements. The error falls faster than any power of the number of nodes where
the solution is smooth. Gradients come from the implicit function theorem.

Quaglino, Gallieri, Masci, Koutník (2020), "SNODE: Spectral discretization of neural ODEs for
system identification"; Walker, Ni (2011), "Anderson acceleration for fixed-point iterations".
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphode.flows.chebyshev import basis, integration_matrix, lobatto_nodes, polynomials
from graphode.flows.evaluation import Evaluation
from graphode.flows.host import refuse_transforms
from graphode.flows.implicit import solution_tolerance
from graphode.flows.implicit_function import implicit_value
from graphode.flows.krylov import solved
from graphode.flows.layout import Layout, Time
from graphode.flows.method import Carry, Method, Step, blend

_MAX_ITERATIONS = 100
_MEMORY = 6


@dataclass(frozen=True, kw_only=True)
class Collocation(Method):
    """Chebyshev collocation on elements.

    Args:
        rtol: Relative tolerance of the fixed-point iteration.
        atol: Absolute tolerance of the fixed-point iteration.
        nodes: Chebyshev–Lobatto nodes per element, both ends included.
    """

    rtol: float = 1e-8
    atol: float = 1e-10
    nodes: int = 16

    can_be_recorded = False  # the iteration asks the host whether it has converged

    def __post_init__(self) -> None:
        if self.nodes < 3:
            raise ValueError(
                f"`nodes` must be at least 3, but is {self.nodes}. A polynomial of degree 2 is the "
                f"least that collocation can use."
            )

    @property
    def order(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """One less than the number of nodes."""
        return self.nodes - 1

    @property
    def grid(self) -> "Grid":
        """The nodes and their matrices."""
        return _grid(self.nodes)

    def start(self, f: Evaluation, t: Time, y: Tensor) -> Carry:
        """The derivative at the first node."""
        return (f(t, y),)

    def step(self, f: Evaluation, t: Time, y: Tensor, dt: Time, carry: Carry) -> Step:
        """Solve one element."""
        refuse_transforms("A solve by collocation")
        first = f.at_start(t, y, carry[0])
        with torch.no_grad():
            values, failed = self._fixed_point(f, t, y, dt, first)
        if torch.is_grad_enabled():
            values = self._differentiable(f, t, y, dt, first, values)
        stages = (y, *values.unbind(0))
        return Step(t, dt, y, stages[-1], stages, (f(t + dt, stages[-1]),), failed)

    def interpolate(self, f: Evaluation, step: Step, theta: Tensor) -> Tensor:
        """The collocation polynomial itself."""
        matrix = torch.from_numpy(self.grid.to_coefficients).to(theta.device, theta.dtype)
        weights = torch.stack(polynomials(theta, self.nodes), -1) @ matrix
        terms = [(weights[..., i], stage) for i, stage in enumerate(step.stages)]
        return blend(f.layout, torch.zeros_like(step.y0), terms)

    def _derivatives(self, f: Evaluation, t: Time, dt: Time, values: Tensor) -> Tensor:
        """f at every node but the first, `[nodes − 1, *state]`."""
        nodes = self.grid.nodes[1:].tolist()
        return torch.stack([f(t + node * dt, y) for node, y in zip(nodes, values, strict=True)])

    def _integrate(self, others: Tensor) -> Tensor:
        """S f at every node but the first, of what f is at all nodes but the first."""
        matrix = torch.from_numpy(self.grid.integrals[:, 1:]).to(others.device, others.dtype)
        return torch.tensordot(matrix, others, dims=1)

    def _known(self, f: Evaluation, y: Tensor, dt: Time, first: Tensor) -> Tensor:
        """y(0) and what f at the first node adds, at every node but the first."""
        weights = torch.from_numpy(self.grid.integrals[:, 0]).to(y.device, y.dtype)
        return y + f.layout.scale(dt) * weights.reshape(-1, *(1,) * y.ndim) * first

    def _fixed_point(
        self, f: Evaluation, t: Time, y: Tensor, dt: Time, first: Tensor
    ) -> tuple[Tensor, Tensor]:
        scale = f.layout.scale(dt)
        nodes = torch.from_numpy(self.grid.nodes[1:]).to(y.device, y.dtype)
        values = y + scale * nodes.reshape(-1, *(1,) * y.ndim) * first
        known = self._known(f, y, dt, first)
        mixer = Anderson(f.layout, _MEMORY)
        solved = torch.zeros(f.layout.batch_shape, dtype=torch.bool, device=y.device)
        found = values
        for _ in range(_MAX_ITERATIONS):
            image = known + scale * self._integrate(self._derivatives(f, t, dt, values))
            tolerated = self.atol + self.rtol * image.abs()
            change = f.layout.rms((image - values) / tolerated).amax(0)
            # A sample keeps the first image that satisfies it, as if it were alone.
            found = torch.where(f.layout.spread(solved), found, image)
            solved = solved | (change <= 1)
            if bool((solved | ~change.isfinite()).all()):
                break
            values = mixer.next(values, image)
        return found, ~solved

    def _differentiable(
        self, f: Evaluation, t: Time, y: Tensor, dt: Time, first: Tensor, values: Tensor
    ) -> Tensor:
        """The node values with their derivatives."""
        scale = f.layout.scale(dt)

        def left(values: Tensor) -> Tensor:
            return values - scale * self._integrate(self._derivatives(f, t, dt, values))

        known, tolerance = self._known(f, y, dt, first), solution_tolerance(f.layout.dtype)
        return implicit_value(
            left, known, values, lambda a, b: solved(a, b, f.layout, tolerance=tolerance)
        )


class Grid(NamedTuple):
    """Chebyshev–Lobatto nodes on [0, 1], S at all but the first, and values → coefficients."""

    nodes: np.ndarray
    integrals: np.ndarray
    to_coefficients: np.ndarray


@functools.cache
def _grid(count: int) -> Grid:
    nodes = lobatto_nodes(count)
    return Grid(nodes, integration_matrix(nodes)[1:], np.linalg.inv(basis(nodes, count - 1)))


class Anderson:
    """Anderson acceleration of x ← g(x), one small least-squares problem per sample."""

    def __init__(self, layout: Layout, memory: int) -> None:
        self.layout, self.memory = layout, memory
        self.images: list[Tensor] = []
        self.residuals: list[Tensor] = []

    def next(self, x: Tensor, image: Tensor) -> Tensor:
        """The next iterate from the last few pairs x, g(x)."""
        self.images = [*self.images, image][-self.memory :]
        self.residuals = [*self.residuals, image - x][-self.memory :]
        if len(self.images) == 1:
            return image
        residuals = torch.stack(self.residuals)
        differences = residuals[1:] - residuals[:-1]
        size, batch = len(differences), self.layout.batch_shape
        gram = torch.stack([self._dot(differences, d) for d in differences], -1)
        gram = gram.movedim(0, -2).reshape(*batch, size, size)
        target = self._dot(differences, residuals[-1]).movedim(0, -1).reshape(*batch, size, 1)
        # A sample that overflows is not mixed; it must not keep the others from their solution.
        gram, target = (x.nan_to_num(0.0, posinf=0.0, neginf=0.0) for x in (gram, target))
        weights = (torch.linalg.pinv(gram, hermitian=True) @ target).movedim(-2, 0)[..., 0]
        for weight, new, old in zip(weights, self.images[1:], self.images[:-1], strict=True):
            image = image - self.layout.spread(weight) * (new - old)
        return image

    def _dot(self, a: Tensor, b: Tensor) -> Tensor:
        """Inner products over nodes and system, `[count, *batch]`."""
        return self.layout.dot(a, b).sum(1)
