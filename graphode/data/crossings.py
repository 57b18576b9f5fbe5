"""Solve a field that switches: every crossing is found, the step ends there, and the rest follows.

    dy/dt = f(t, y, inside),    inside_p = [g_p(y) ≤ 0]

Between two crossings `inside` is constant and f smooth, so that a step keeps its order; a step that
runs into a crossing is cut there, on its dense output. Each sample has its own steps, crossings and
end. The engine's events stop a solve at a crossing; here there are hundreds, of dozens of gaps g_p,
and the solve goes on.

Inside a step every gap is followed, with its slope, through `CHECKS` equal parts as a cubic. So a
gap that closes and opens again within a part, as of particles that graze each other, is seen too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from graphode.data.first_roots import first_crossings
from graphode.flows import SolveError, StepControl
from graphode.flows.control import first_step
from graphode.flows.evaluation import Evaluation
from graphode.flows.layout import Layout
from graphode.flows.method import Step
from graphode.flows.runge_kutta import RungeKutta

CHECKS = 16
# So many crossings in so short a time, and a sample gets nowhere.
CHATTER, STANDSTILL = 200, 1e-3


@runtime_checkable
class Switched(Protocol):
    """A field that switches where its gaps change sign."""

    def __call__(self, t: Tensor, z: Tensor, inside: Tensor) -> Tensor:
        """dy/dt for a given side of every gap: `inside` [samples, gaps] is 1 or 0."""
        ...

    def gaps(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """g and dg/dt, `[..., samples, gaps]`."""
        ...

    def check(self, gap: Tensor, t: Tensor) -> None:
        """Raise where the gaps `[..., samples, gaps]` show a state that has no future."""
        ...


@dataclass(frozen=True)
class SwitchedSolution:
    """States `[samples, time, …]`, crossings per sample, and calls of the field in total."""

    states: Tensor
    crossings: Tensor
    evaluations: int


class SwitchedSolve:
    """One solve of a batch of samples; attributes hold one value per sample.

    Args:
        field: The field, its gaps and what it refuses.
        y0: States `[samples, …]` at the first of `times`.
        times: Output times `[time]`, increasing.
        method: A Runge–Kutta method with an error estimate.
        rtol: Relative tolerance of each step's error.
        atol: Absolute tolerance.
        follow: Called with the mean time reached, after every step; None for nobody.
    """

    def __init__(
        self,
        field: Switched,
        y0: Tensor,
        times: Tensor,
        method: RungeKutta,
        rtol: float,
        atol: float,
        follow: Callable[[float], None] | None,
    ) -> None:
        self.field, self.method, self.rtol, self.atol = field, method, rtol, atol
        self.follow = follow
        self.times, self.end = times.numpy(), float(times[-1])
        self.t, self.y = y0.new_full((len(y0),), float(times[0])), y0
        gap, _ = field.gaps(y0)
        field.check(gap, self.t)
        self.inside = (gap <= 0).to(y0.dtype)
        self.f = Evaluation(field, (self.inside,), Layout.of(y0, 1))
        derivative = self.f(self.t, y0)
        self.carry = (derivative,) if method.tableau.first_same_as_last else ()
        span = self.end - self.t
        order = method.tableau.error_order
        self.dt = first_step(
            self.f, self.t, y0, derivative, span, error_order=order, rtol=rtol, atol=atol
        )
        self.ratio = self.ratio_before = torch.ones_like(self.t)
        self.crossings = np.zeros(len(y0), dtype=np.int64)
        self.marks = self.t.numpy().copy()
        self.states = y0.new_empty(len(self.times), *y0.shape)
        self.states[0] = y0
        self.next = np.ones(len(y0), dtype=np.int64)

    @torch.no_grad()
    def run(self) -> SwitchedSolution:
        """Take every sample to the last time."""
        while bool((running := self.t < self.end).any()):
            remaining = self.end - self.t
            lands = running & (self.dt >= remaining)
            size = torch.where(running, torch.where(lands, remaining, self.dt), 0.0)
            step = self.method.step(self.f, self.t, self.y, size, self.carry)
            accept = self._judge(step, size, running)
            if bool(accept.any()):
                self._advance(step, size, accept, lands)
            if self.follow is not None:
                self.follow(float(self.t.mean()))
        return SwitchedSolution(
            self.states.transpose(0, 1).contiguous(),
            torch.from_numpy(self.crossings),
            self.f.calls,
        )

    def _judge(self, step: Step, size: Tensor, running: Tensor) -> Tensor:
        """Accept or refuse per sample, and choose the next step size."""
        ratio = self.method.error_ratio(self.f, step, self.rtol, self.atol)
        accept = running & (ratio <= 1)
        order = self.method.tableau.error_order
        factor = StepControl().factor(ratio, self.ratio, self.ratio_before, accept, order)
        self.dt = torch.where(running, size * factor, self.dt)
        self.ratio_before = torch.where(accept, self.ratio, self.ratio_before)
        self.ratio = torch.where(accept, ratio.clamp(min=1e-4), self.ratio)
        lost = running & ~accept & (self.dt < 1e-14 * self.end)
        if bool(lost.any()):
            sample = int(lost.nonzero()[0])
            raise SolveError(
                f"Step size underflow: system {sample} at t = {float(self.t[sample]):.6g}. Two "
                f"particles pass too close to each other: take another seed, or end earlier."
            )
        return accept

    def _advance(self, step: Step, size: Tensor, accept: Tensor, lands: Tensor) -> None:
        """Move the samples that accepted: to the end of the step, or to its first crossing."""
        parts = torch.linspace(0, 1, CHECKS + 1, dtype=size.dtype)[:, None].expand(-1, len(size))
        gap, rate = self.field.gaps(self.method.interpolate(self.f, step, parts))
        self.field.check(gap, self.t)
        outward = 1 - 2 * self.inside
        slope = rate * outward * (size / CHECKS)[:, None]
        where, which = first_crossings((gap * outward).numpy(), slope.numpy(), accept.numpy())
        crossed, part = torch.from_numpy(which >= 0), torch.from_numpy(where)
        spread = self.f.layout.spread
        t = torch.where(accept, torch.where(lands, self.end, self.t + size), self.t)
        y = torch.where(spread(accept), step.y1, self.y)
        carry = tuple(
            torch.where(spread(accept), new, old)
            for new, old in zip(step.carry, self.carry, strict=True)
        )
        if bool(crossed.any()):
            cut = self.method.interpolate(self.f, step, part[None])[0]
            y = torch.where(spread(crossed), cut, y)
            t = torch.where(crossed, self.t + part * size, t)
            self._switch(t, which)
            carry = (self.f(t, y),) if carry else ()
        self._collect(step, size, t.numpy())
        self.t, self.y, self.carry = t, y, carry

    def _switch(self, t: Tensor, which: np.ndarray) -> None:
        """Turn the gaps that were crossed, and see that samples get on."""
        samples = np.flatnonzero(which >= 0)
        self.inside[samples, which[samples]] = 1 - self.inside[samples, which[samples]]
        self.crossings[samples] += 1
        for sample in samples[self.crossings[samples] % CHATTER == 0]:
            now = float(t[sample])
            if now - self.marks[sample] < STANDSTILL * min(1.0, self.end):
                raise SolveError(
                    f"System {sample} crosses without end: {CHATTER} times between t = "
                    f"{self.marks[sample]:.9g} and {now:.9g}. Where particles come to rest at the "
                    f"distance at which their force sets in, the solution slides, which is not "
                    f"solved here: end earlier, or lower the drag."
                )
            self.marks[sample] = now

    def _collect(self, step: Step, size: Tensor, reached: np.ndarray) -> None:
        """The states at the output times that every sample has passed."""
        stop = np.searchsorted(self.times, reached, side="right")
        count = int((stop - self.next).max())
        if count > 0:
            index = self.next + np.arange(count)[:, None]
            due = index < stop
            times = torch.from_numpy(self.times[np.minimum(index, len(self.times) - 1)])
            part = torch.where(torch.from_numpy(due), (times - self.t) / size, 0.0)
            states = self.method.interpolate(self.f, step, part)
            rows, samples = np.nonzero(due)
            self.states[index[due], samples] = states[rows, samples]
        self.next = stop
