"""The loop that chooses its steps, for one sample on a CPU, with its bookkeeping in floats.

It does what `adaptive` does for many samples with a tensor for every number, where a step of a
small state costs as much in operations on these as in evaluations of its field.
"""

import math
import sys

import torch
from torch import Tensor

from graphode.flows.adaptive import LANDING, Tolerances
from graphode.flows.evaluation import Evaluation
from graphode.flows.method import Carry
from graphode.flows.runge_kutta import RungeKutta
from graphode.flows.solution import Status

RESOLUTION = 4 * sys.float_info.epsilon


class LoneSolve:
    """One solve of one sample, of which only the final state is wanted.

    Args:
        method: A method with an error estimate.
        f: The field.
        t0: Start time.
        t1: End time.
        dt: First step size, signed; NaN if there is none.
        tolerances: What the steps are held to.
    """

    def __init__(
        self,
        method: RungeKutta,
        f: Evaluation,
        t0: float,
        t1: float,
        dt: float,
        tolerances: Tolerances,
    ) -> None:
        self.method, self.f, self.tolerances = method, f, tolerances
        self.t, self.t1 = t0, t1
        # The guess is a cautious one: what is too short for the clock says nothing of a step.
        least = 2 * max(self._smallest(t0), self._smallest(t1))
        self.dt = math.copysign(least, t1 - t0) if abs(dt) < least else dt
        self.accepted = self.rejected = 0
        self.status = Status.SUCCESS
        if math.isnan(dt):
            self.dt, self.status = 0.0, Status.NON_FINITE

    def run(self, y: Tensor, carry: Carry) -> Tensor:
        """Integrate to the end; returns the final state."""
        tolerances, order = self.tolerances, self.method.tableau.error_order
        previous = before = 1.0
        while self.t != self.t1 and self.status == Status.SUCCESS:
            remaining = self.t1 - self.t
            lands = abs(self.dt) >= abs(remaining) * (1 - LANDING)
            size = remaining if lands else self.dt
            self.f.noise.begin_step(self.accepted, self.accepted + self.rejected)
            step = self.method.step(self.f, self.t, y, size, carry)
            with torch.no_grad():
                ratio = self.method.error_ratio(self.f, step, tolerances.rtol, tolerances.atol)
            ratio = ratio.item()
            accept = ratio <= 1
            self.dt = size * tolerances.control.lone_factor(ratio, previous, before, accept, order)
            if accept:
                self.accepted += 1
                self.t = self.t1 if lands else self.t + size
                y, carry = step.y1, step.carry
                previous, before = max(ratio, 1e-4), previous
            else:
                self.rejected += 1
            self._check()
        return y

    def _check(self) -> None:
        """Give up where the end is out of reach."""
        if self.t == self.t1:
            return
        if self.accepted + self.rejected >= self.tolerances.max_steps:
            self.status = Status.MAX_STEPS
        elif abs(self.dt) <= self._smallest(self.t):
            self.status = Status.STEP_UNDERFLOW

    def _smallest(self, t: float) -> float:
        """A step that time cannot resolve leads nowhere, even if its error were small enough."""
        return max(RESOLUTION * abs(t), self.tolerances.min_step)
