"""One step of any explicit Runge–Kutta method, its error and its continuous extension."""

import torch
from torch import Tensor

from graphode.flows.combination import error_ratio, may_combine
from graphode.flows.evaluation import Evaluation, advance, advance_in_chain, weighted_sum
from graphode.flows.layout import SegmentedLayout, Time
from graphode.flows.method import Carry, Method, Step, blend, hermite
from graphode.flows.tableaus import Row, Tableau


class RungeKutta(Method):
    """An explicit Runge–Kutta method; the equations stand in `tableaus.py`."""

    def __init__(self, tableau: Tableau) -> None:
        self.tableau = tableau
        self.order = tableau.order

    def start(self, f: Evaluation, t: Time, y: Tensor) -> Carry:
        """The first derivative, where the method hands it from step to step."""
        return (f(t, y),) if self.tableau.first_same_as_last else ()

    def step(self, f: Evaluation, t: Time, y: Tensor, dt: Time, carry: Carry) -> Step:
        """Evaluate the stages and advance."""
        tableau, layout = self.tableau, f.layout
        stages = (f.at_start(t, y, carry[0]) if carry else f(t, y),)
        # The step keeps the `y` it was given, so that no gradient comes by here if it is refused.
        start, state = y, y
        for c, a in zip(tableau.c[1:], tableau.a[1:], strict=True):
            state, start, stages = advance_in_chain(start, dt, a, stages, layout)
            stages = (*stages, f(t + c * dt, state))
        if tableau.first_same_as_last:
            # The last stage was evaluated at the new state.
            return Step(t, dt, y, state, stages, stages[-1:], end=stages[-1])
        y1, _, stages = advance_in_chain(start, dt, tableau.b, stages, layout)
        return Step(t, dt, y, y1, stages)

    def error_ratio(self, f: Evaluation, step: Step, rtol: float, atol: float) -> Tensor:
        """The estimated error over the tolerated one, root mean square per sample.

            ‖ err / (atol + rtol max(|y|, |y⁺|)) ‖;  a ratio of at most 1 is accepted.

        With two estimates (DOP853): ‖e₅‖² / √(‖e₅‖² + 0.01 ‖e₃‖²).
        """
        tableau, layout = self.tableau, f.layout
        assert tableau.e is not None
        dt = layout.scale(step.dt)
        one_estimate = tableau.e_low is None and not isinstance(layout, SegmentedLayout)
        if one_estimate and isinstance(dt, Tensor) and step.y0.is_cuda:
            used = [(w, k) for w, k in zip(tableau.e, step.stages, strict=False) if w != 0]
            weights, terms = [w for w, _ in used], [k for _, k in used]
            if may_combine(step.y0, terms, dt):
                ratio = error_ratio(step.y0, step.y1, weights, terms, dt, rtol, atol)
                return ratio.reshape(layout.batch_shape)
        tolerated = torch.maximum(step.y0.abs(), step.y1.abs()).mul_(rtol).add_(atol)
        ratio = layout.rms(self._error(tableau.e, step, dt).div_(tolerated))
        if tableau.e_low is None:
            return ratio
        low = layout.rms(self._error(tableau.e_low, step, dt).div_(tolerated))
        denominator = torch.sqrt(ratio**2 + 0.01 * low**2)
        return torch.where(denominator == 0, 0.0, ratio**2 / denominator)

    def _error(self, weights: Row, step: Step, dt: Time) -> Tensor:
        if isinstance(dt, Tensor):
            return weighted_sum(weights, step.stages, 1.0) * dt
        return weighted_sum(weights, step.stages, dt)

    def interpolate(self, f: Evaluation, step: Step, theta: Tensor) -> Tensor:
        """The published continuous extension, or cubic Hermite for methods that have none."""
        tableau = self.tableau
        if tableau.p is None:
            return hermite(f, step, theta)
        self._add_extra_stages(f, step)
        powers = torch.stack([theta**m for m in range(1, len(tableau.p[0]) + 1)], dim=-1)
        weights = powers @ torch.tensor(tableau.p, dtype=theta.dtype, device=theta.device).T
        weights = weights * (step.dt[..., None] if isinstance(step.dt, Tensor) else step.dt)
        terms = [
            (weights[..., index], stage)
            for index, stage in enumerate(step.stages)
            if any(tableau.p[index])
        ]
        return blend(f.layout, step.y0, terms)

    def _add_extra_stages(self, f: Evaluation, step: Step) -> None:
        tableau = self.tableau
        present = len(step.stages) - len(tableau.c)
        extra = zip(tableau.extra_c[present:], tableau.extra_a[present:], strict=True)
        for c, a in extra:
            state = advance(step.y0, step.dt, a, step.stages, f.layout)
            step.stages = (*step.stages, f(step.t + c * step.dt, state))
