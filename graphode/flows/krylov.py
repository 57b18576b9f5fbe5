"""GMRES without a matrix, one system per sample, all samples in one iteration.

Saad, Schultz (1986), "GMRES: a generalized minimal residual algorithm for solving nonsymmetric
linear systems".
"""

import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from graphode.flows.layout import Layout

Operator = Callable[[Tensor], Tensor]

# Vectors before a restart from the residual. A restart forgets what it knew of the matrix, and a
# stiff one is then never solved: as many vectors as there are unknowns, if memory allows.
_MOST_VECTORS = 500
_FEWEST_VECTORS = 30
_BYTES_OF_VECTORS = 2**28
_RESTARTS = 50
_PROGRESS = 0.95  # What a restart must make of some sample's residual to be followed by another.
_CANCELLED = 0.5  # What must be left of a vector beside those known, that once is enough.


def solved(operator: Operator, right: Tensor, layout: Layout, *, tolerance: float) -> Tensor:
    """The solution of `operator(x) = right`, with a warning where it is far from `tolerance`.

    Args:
        operator: A linear map of tensors shaped as `right`, acting on each sample alone.
        right: `[..., *state]`; dimensions before the state belong to the system.
        layout: Of the state.
        tolerance: What may be left of `right`.
    """
    x, left, _ = gmres(operator, right, layout, tolerance=tolerance)
    worst = left.nan_to_num(0.0).max().item() if left.numel() else 0.0
    if worst > tolerance**0.5:
        warnings.warn(
            f"The gradient of an implicit step was solved for to a residual of {worst:.0e} only, "
            f"where {tolerance:.0e} was wanted: the step is too stiff for the precision of the "
            f"state or for the Krylov vectors that fit in memory. Take shorter steps, or float64.",
            stacklevel=2,
        )
    return x


@torch.no_grad()
def gmres(
    operator: Operator, right: Tensor, layout: Layout, *, tolerance: float | Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Solve `operator(x) = right` until every sample's residual is `tolerance · ‖right‖`.

    Args:
        operator: A linear map of tensors shaped as `right`, acting on each sample alone.
        right: `[..., *state]`; dimensions before the state belong to the system.
        layout: Of the state.
        tolerance: What may be left of `right`.

    Returns:
        The solution; ‖right − operator(x)‖ / ‖right‖ per sample, which stays near 1 where the
        system is singular (and is NaN where there is nothing to solve); and by how much at most the
        operator has stretched a vector that it met.
    """
    shape = right.shape
    right = right.reshape(-1, *layout.shape)
    space = _Space(layout, lambda v: operator(v.reshape(shape)).reshape(right.shape))
    # Of numbers near 1 no square vanishes or overflows, however small or large the system is.
    unit = layout.largest(right).amax(0)
    unit = layout.spread(torch.where((unit > 0) & unit.isfinite(), unit, 1.0))
    right = right / unit
    whole = norm = space.norms(right)
    goal = tolerance * whole
    x, residual = torch.zeros_like(right), right
    before = torch.full_like(norm, torch.inf)
    for _ in range(_RESTARTS):
        # A sample that overflows is given up, and one that no restart brings on; neither must keep
        # the others from their solution.
        if bool(((norm <= goal) | ~norm.isfinite() | (norm > _PROGRESS * before)).all()):
            break
        before = norm
        x = x + space.correction(residual, norm, goal)
        residual = right - space.operator(x)
        norm = space.norms(residual)
    return (x * unit).reshape(shape), norm / whole, space.stretch.expand(norm.shape)


class _Space:
    """Krylov spaces of an operator, one per sample; vectors are `[parts, *state]`."""

    def __init__(self, layout: Layout, operator: Operator) -> None:
        self.layout, self.operator = layout, operator
        # Of one sample a product with all vectors is one of matrices, and writes no copy of them.
        self.alone = math.prod(layout.batch_shape) == 1
        self.stretch = torch.zeros((), device=layout.device)

    def correction(self, residual: Tensor, norm: Tensor, goal: Tensor) -> Tensor:
        """What of one space, added to the solution, leaves least of the residual."""
        tiny = torch.finfo(residual.dtype).tiny
        basis = residual.new_empty(0, *residual.shape)
        vector, length = residual, norm
        columns: list[Tensor] = []
        # The row that the Hessenberg matrix maps to 0: what least squares leave of the residual is
        # its part along that row.
        row = torch.ones_like(norm)[None]
        done = (norm <= goal) | ~norm.isfinite()
        most = _most_vectors(residual)
        while len(columns) < most and not bool(done.all()):
            count = len(columns)
            if count == len(basis):
                more = min(max(_FEWEST_VECTORS, count), most - count)
                basis = torch.cat([basis, residual.new_empty(more, *vector.shape)])
            basis[count] = vector / self._spread(length.clamp(min=tiny))
            known = basis[: count + 1]
            vector = self.operator(basis[count])
            stretched = self.norms(vector)
            column = self._dots(known, vector)
            vector = vector - self._combined(column, known)
            length = self.norms(vector)
            # Where little is left, rounding has left as much along what is known.
            cancelled = length < _CANCELLED * stretched
            if bool(cancelled.any()):
                # Of these samples alone: the others stay to the bit as they would be without them.
                again = self._dots(known, vector).masked_fill(~cancelled, 0.0)
                vector = vector - self._combined(again, known)
                column, length = column + again, self.norms(vector)
            broken = ~(length.isfinite() & stretched.isfinite())
            # A sample that is done takes no more of its space, as if it were alone.
            column = torch.cat([column, length[None]]).masked_fill(done | broken, 0.0)
            columns.append(column)
            stretched = stretched.masked_fill(done | broken, 0.0)
            self.stretch = torch.maximum(self.stretch.to(stretched), stretched)
            entry = -(row * column[:-1]).sum(0) / length.clamp(min=tiny)
            row = torch.cat([row, entry[None]])
            error = norm / torch.linalg.vector_norm(row, dim=0)
            # A sample whose space is exhausted (length 0) is solved exactly.
            done = done | (error <= goal) | (length <= tiny) | broken
        weights = _least_squares(columns, norm.masked_fill(~norm.isfinite(), 0.0))
        return self._combined(weights, basis[: len(columns)])

    def norms(self, x: Tensor) -> Tensor:
        """The length of a vector, `[*batch]`."""
        return self._dots(x[None], x)[0].sqrt()

    def _dots(self, several: Tensor, x: Tensor) -> Tensor:
        """Inner products of vectors with one, `[vectors, *batch]`."""
        if self.alone:
            return (several.flatten(1) @ x.flatten()).reshape(-1, *self.layout.batch_shape)
        return self.layout.dot(several, x).sum(1)

    def _combined(self, weights: Tensor, several: Tensor) -> Tensor:
        """Σ_v w_v x_v with weights `[vectors, *batch]`."""
        if self.alone:
            return (weights.flatten() @ several.flatten(1)).reshape(several.shape[1:])
        return (self._spread(weights) * several).sum(0)

    def _spread(self, value: Tensor) -> Tensor:
        """Line values `[..., *batch]` up with vectors `[..., parts, *state]`."""
        return self.layout.spread(value).unsqueeze(-len(self.layout.shape) - 1)


def _most_vectors(vector: Tensor) -> int:
    fit = _BYTES_OF_VECTORS // max(1, vector.numel() * vector.element_size())
    return min(max(fit, _FEWEST_VECTORS), _MOST_VECTORS)


def _least_squares(columns: list[Tensor], norm: Tensor) -> Tensor:
    """min_w ‖norm e₁ − H w‖ per sample, `[size, *batch]`, for the Hessenberg matrix H."""
    size = len(columns)
    hessenberg = norm.new_zeros((*norm.shape, size + 1, size))
    for index, column in enumerate(columns):
        hessenberg[..., : index + 2, index] = column.movedim(0, -1)
    q, r = torch.linalg.qr(hessenberg)
    right = q[..., 0, :] * norm[..., None]
    # What a singular matrix leaves open is 0.
    diagonal = r.diagonal(dim1=-2, dim2=-1).abs()
    free = diagonal <= torch.finfo(norm.dtype).eps * diagonal.amax(-1, keepdim=True)
    r = r.masked_fill(free[..., None] | free[..., None, :], 0.0)
    r = r + torch.diag_embed(free.to(r.dtype))
    right = right.masked_fill(free, 0.0)
    return torch.linalg.solve_triangular(r, right[..., None], upper=True)[..., 0].movedim(-1, 0)
