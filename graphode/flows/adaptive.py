"""The loop that chooses its steps: every sample its own size, acceptance, and end.

The field always sees the whole batch. A sample that is done takes steps of size 0, one whose step
was refused is put back: both keep their states to the bit. The host is asked how far things are
only when it has to act on the answer (an output, an event, a graph to record), or when the last
sample can have arrived at the earliest.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from graphode.flows.control import StepControl
from graphode.flows.evaluation import Evaluation
from graphode.flows.events import EventTracker
from graphode.flows.host import on_host
from graphode.flows.method import Carry, KeptStep, Method, Step
from graphode.flows.outputs import Outputs
from graphode.flows.recorder import Recorder
from graphode.flows.runge_kutta import RungeKutta
from graphode.flows.solution import Status

# A step that reaches all but this part of what remains ends at the end.
LANDING = 1e-10


@dataclass(frozen=True, kw_only=True)
class Tolerances:
    """What an adaptive solve is held to."""

    rtol: float
    atol: float
    control: StepControl
    max_steps: int
    min_step: float


class AdaptiveSolve:
    """One solve of a batch; attributes hold one value per sample, `[*batch]`.

    Args:
        method: A method with an error estimate, or any method when `tolerances` is None.
        f: The field.
        t0: Start times, float64; may carry a gradient, which the times of the steps then follow.
        t1: End times.
        dt: First step sizes, signed; NaN for samples that cannot begin.
        tolerances: None keeps the step size (for events with a fixed-step method).
        outputs: Collects the states at output times.
        events: Watches for zero crossings.
        recorder: Keeps the steps, to be taken again.
        kept: Collects the steps, for dense output.
        attempts: Make so many, without ever asking the host: what a CUDA graph can record. Who
            needs fewer rests, who needs more ends with `Status.MAX_STEPS`.
    """

    def __init__(
        self,
        method: Method,
        f: Evaluation,
        t0: Tensor,
        t1: Tensor,
        dt: Tensor,
        tolerances: Tolerances | None,
        *,
        outputs: Outputs | None,
        events: EventTracker | None,
        recorder: Recorder | None,
        kept: list[KeptStep] | None,
        attempts: int | None,
    ) -> None:
        self.method, self.f, self.tolerances = method, f, tolerances
        self.outputs, self.events, self.recorder, self.kept = outputs, events, recorder, kept
        self.start = t0
        self.t, self.t1, self.dt = t0.detach(), t1.detach(), dt
        self.running = self.t != self.t1
        if tolerances is not None:
            # The guess is a cautious one: what is too short for the clock says nothing of a step.
            least = 2 * torch.maximum(self._smallest(self.t), self._smallest(self.t1))
            self.dt = torch.where(dt.abs() < least, least * (self.t1 - self.t).sign(), dt)
        zeros = torch.zeros(dt.shape, dtype=torch.int64, device=dt.device)
        self.status, self.accepted, self.rejected, self.evaluations = (zeros,) * 4
        self._fail(self.running & dt.isnan(), Status.NON_FINITE)
        self.dt = self.dt.nan_to_num()
        self.ratio = self.ratio_before = torch.ones_like(dt)
        self.numbers = (zeros, -1)
        self.graph_is_recorded = torch.is_grad_enabled()
        self.attempts = attempts
        self.host_follows = attempts is None and (
            self.graph_is_recorded
            or f.layout.device.type == "cpu"
            or recorder is not None
            or kept is not None
            or events is not None
            or (outputs is not None and len(outputs.host) > 2)
        )

    def run(self, y: Tensor, carry: Carry) -> Tensor:
        """Integrate every sample to its end; returns the final states."""
        if self.attempts is not None:
            for _ in range(self.attempts):
                y, carry = self._advance(y, carry)
            self._fail(self.running, Status.MAX_STEPS)
            return y
        attempts_left = 0
        while True:
            if attempts_left == 0:
                if not bool(self.running.any()):
                    return y
                attempts_left = 1 if self.host_follows else self._attempts_before_the_end()
            attempts_left -= 1
            y, carry = self._advance(y, carry)

    def _advance(self, y: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        """One attempt of all samples."""
        calls = self.f.calls
        was_running = self.running
        step, lands = self._attempt(y, carry)
        accept = self._judge(step)
        self.evaluations = self.evaluations + (self.f.calls - calls) * was_running
        return self._commit(step, accept, lands, y, carry)

    def _attempt(self, y: Tensor, carry: Carry) -> tuple[Step, Tensor]:
        remaining = self.t1 - self.t
        lands = self.dt.abs() >= remaining.abs() * (1 - LANDING)
        size = torch.where(self.running, torch.where(lands, remaining, self.dt), 0.0)
        t = self.start + (self.t - self.start.detach()) if self.start.requires_grad else self.t
        self.numbers = (self.accepted, self.numbers[1] + 1)
        self.f.noise.begin_step(*self.numbers)
        return self.method.step(self.f, t, y, size, carry), lands

    @torch.no_grad()
    def _judge(self, step: Step) -> Tensor:
        """Accept or refuse per sample; set the next step size and the status."""
        running, size = self.running, step.dt
        assert isinstance(size, Tensor)
        if self.tolerances is None:
            accept = running & self.f.layout.is_finite(step.y1)
            self._fail(running & ~accept, Status.NON_FINITE)
        else:
            assert isinstance(self.method, RungeKutta)
            tolerances = self.tolerances
            ratio = self.method.error_ratio(self.f, step, tolerances.rtol, tolerances.atol)
            ratio = ratio.to(size.dtype).detach()  # forward mode ends here, too
            accept = running & (ratio <= 1)
            order = self.method.tableau.error_order
            factor = tolerances.control.factor(ratio, self.ratio, self.ratio_before, accept, order)
            self.dt = torch.where(running, size * factor, self.dt)
            self.ratio_before = torch.where(accept, self.ratio, self.ratio_before)
            self.ratio = torch.where(accept, ratio.clamp(min=1e-4), self.ratio)
        if step.failed is not None:
            self._fail(running & step.failed, Status.NOT_CONVERGED)
        self.accepted = self.accepted + accept
        self.rejected = self.rejected + (running & ~accept)
        return accept

    def _commit(
        self, step: Step, accept: Tensor, lands: Tensor, y: Tensor, carry: Carry
    ) -> tuple[Tensor, Carry]:
        """Move the samples that accepted, and serve whoever follows the solve."""
        layout = self.f.layout
        assert isinstance(step.dt, Tensor)
        size = step.dt
        end = torch.where(accept, torch.where(lands, self.t1, self.t + size), self.t)
        arrived = accept & lands
        everyone = False
        if self.host_follows:
            # One that rests has a step of size 0, which leaves it where it is, unless the field is
            # infinite there.
            flags = torch.stack([accept, accept | (size == 0)]).reshape(2, -1)
            moved, in_place = on_host(flags)
            everyone = bool(in_place.all())
            if everyone and not moved.all():
                everyone = bool(layout.is_finite(step.y1.detach()).all())
            if not moved.any():
                self._close(end, arrived)
                return y, carry
            if self.graph_is_recorded and not everyone:
                step = self._without_refused(step, accept, carry)
            if self.recorder is not None:
                assert self.outputs is not None
                self.recorder.before_step(len(self.recorder.sizes), y, carry, self.outputs.next)
            if self.events is not None:
                end, stopped = self.events.watch(self.method, step, accept, end)
                arrived = arrived | stopped
                self._fail(stopped, Status.EVENT)
            host_end = on_host(end.reshape(-1))
            if self.recorder is not None:
                offset = self.t - self.start.detach()
                taken = torch.where(accept, size, 0.0)
                self.recorder.record(offset, taken, host_end, self.numbers)
            if self.outputs is not None:
                calls = self.f.calls
                touched = self.outputs.collect(self.method, self.f, step, host_end, moved)
                if self.f.calls > calls:
                    had_output = torch.from_numpy(touched).to(accept.device).view_as(accept)
                    self.evaluations = self.evaluations + (self.f.calls - calls) * had_output
            if self.kept is not None:
                self.kept.append(KeptStep(step, host_end, moved))
        if everyone:
            y, carry = step.y1, step.carry
        else:
            chosen = layout.spread(accept)
            y = torch.where(chosen, step.y1, y)
            # A history that still grows (adams) has nothing older to keep.
            older = (*carry, *step.carry[len(carry) :])
            carry = tuple(
                torch.where(chosen, new, old) for new, old in zip(step.carry, older, strict=True)
            )
        if self.events is not None:
            y = self.events.settle(y)
        self._close(end, arrived)
        return y, carry

    def _without_refused(self, step: Step, accept: Tensor, carry: Carry) -> Step:
        """The same step with size 0 where it was refused, if it overflowed there.

        A refused sample gets no gradient, but zero times an overflow would still be NaN.
        """
        parts = (step.y1, *step.stages)
        finite = torch.stack([self.f.layout.is_finite(x.detach()) for x in parts]).all(0)
        overflow = ~finite & ~accept
        if not bool(overflow.any()):
            return step
        size = torch.where(accept, step.dt, 0.0)
        self.f.noise.begin_step(*self.numbers)
        return self.method.step(self.f, step.t, step.y0, size, carry)

    def _close(self, end: Tensor, arrived: Tensor) -> None:
        self.t = end
        self.running = self.running & ~arrived
        if self.tolerances is not None:
            spent = self.accepted + self.rejected >= self.tolerances.max_steps
            self._fail(self.running & spent, Status.MAX_STEPS)
            too_short = self.dt.abs() <= self._smallest(self.t)
            self._fail(self.running & too_short, Status.STEP_UNDERFLOW)

    def _smallest(self, t: Tensor) -> Tensor:
        """A step that time cannot resolve leads nowhere, even if its error were small enough."""
        assert self.tolerances is not None
        resolution = 4 * torch.finfo(t.dtype).eps * t.abs()
        return resolution.clamp(min=self.tolerances.min_step)

    def _fail(self, who: Tensor, status: Status) -> None:
        self.status = torch.where(who, int(status), self.status)
        self.running = self.running & ~who

    def _attempts_before_the_end(self) -> int:
        """Fewest attempts after which all samples can be done, growing at most by max_factor."""
        growth = self.tolerances.control.max_factor if self.tolerances else 1.0
        state = torch.stack([self.running, (self.t1 - self.t).abs(), self.dt.abs()])
        running, remaining, size = on_host(state.reshape(3, -1))
        needed = (remaining / size)[running > 0].max()
        if growth <= 1:
            return max(1, math.ceil(needed))
        return max(1, math.ceil(math.log(1 + needed * (growth - 1)) / math.log(growth)))
