"""Output times: which fall into a step, and the states there."""

import numpy as np
import torch
from torch import Tensor

from graphode.flows.evaluation import Evaluation
from graphode.flows.host import on_host
from graphode.flows.method import Method, Step
from graphode.flows.runge_kutta import RungeKutta
from graphode.flows.tableaus import MIDPOINT

# An output this close (in steps) to the end of a step is that end.
SNAP = 1e-9


class Outputs:
    """Collects the states at the output times while a solve goes on.

    Args:
        times: `[time]` or `[*batch, time]`, float64, on the state's device.
        host: The same on the host, `[time, samples]`, samples flattened.
        y0: The state at the first of them.
        batch_shape: Shape of a value per sample.

    Attributes:
        found: Index of an output time, the states there, and which samples they are valid for.
        next: The output time each sample waits for.
        resting: Samples of zero span, if their times want a gradient.
    """

    def __init__(
        self, times: Tensor, host: np.ndarray, y0: Tensor, batch_shape: torch.Size
    ) -> None:
        self.times, self.host, self.batch_shape = times, host, batch_shape
        self.direction = np.sign(host[-1] - host[0])
        self.forward = host * self.direction
        wanted = times.requires_grad and torch.is_grad_enabled()
        self.resting = (self.direction == 0) & wanted
        everyone = np.ones(host.shape[1], dtype=bool)
        self.found: list[tuple[int, Tensor, np.ndarray]] = [(0, y0, everyone)]
        self.next = everyone.astype(np.int64)

    def collect(
        self, method: Method, f: Evaluation, step: Step, end: np.ndarray, moved: np.ndarray
    ) -> np.ndarray:
        """Take the outputs of this step up to `end [samples]` for the samples that `moved`.

        Returns:
            Which samples had one that is not the end of the step.
        """
        reach = end * self.direction
        start, stop = self.next, self.next.copy()
        # The outputs of a zero span are never reached: they take the final state, or `rest`.
        for sample in np.flatnonzero(moved & (self.direction != 0)):
            tail = self.forward[start[sample] :, sample]
            stop[sample] += np.searchsorted(tail, reach[sample], side="right")
        self.next = stop
        touched = stop > start
        if not touched.any():
            return touched
        first, last = int(start[touched].min()), int(stop[touched].max())
        index = np.arange(first, last)[:, None]
        inside = (index >= start) & (index < stop)
        theta = self._positions(step, first, last, inside)
        # A time with a gradient gets it from the interpolation, at the end of a step too.
        at_end = ((theta - 1).abs() < SNAP) & (not theta.requires_grad)
        if bool(at_end.all()):
            states: Tensor | list[Tensor] = [step.y1] * (last - first)
        else:
            # The end is y1 to the bit, whatever other outputs and samples ask of this step.
            states = method.interpolate(f, step, theta)
            states = torch.where(f.layout.spread(at_end), step.y1, states)
        for row, which in enumerate(range(first, last)):
            self.found.append((which, states[row], inside[row]))
        return touched & ~on_host(at_end.all(0).reshape(-1))

    def _positions(self, step: Step, first: int, last: int, inside: np.ndarray) -> Tensor:
        """θ `[count, *batch]` of the outputs in `step`, 1 where a sample has none."""
        times = torch.movedim(self.times, -1, 0)[first:last]
        if self.times.ndim == 1:
            times = times.reshape(-1, *(1 for _ in self.batch_shape))
        mask = torch.from_numpy(inside).to(times.device).reshape(last - first, *self.batch_shape)
        dt = torch.as_tensor(step.dt, dtype=times.dtype, device=times.device)
        dt = torch.where(dt == 0, 1.0, dt)
        return torch.where(mask, (times - step.t) / dt, 1.0)

    def rest(self, f: Evaluation, y: Tensor) -> None:
        """Take the outputs of those `resting` from their start `y`, with the gradient f of time.

        No step leads there that could carry it to each of the times. One of the midpoint rule, of
        size 0, has the first and the second derivatives of the flow.
        """
        if not self.resting.any():
            return
        midpoint, start = RungeKutta(MIDPOINT), self.times[..., 0]
        for which in range(1, len(self.host)):
            f.noise.begin_step(-1, -1)
            size = self.times[..., which] - start
            step = midpoint.step(f, start, y, size - size.detach(), ())
            # A field without a value here has no slope to give, but the state stays.
            state = torch.where(step.y1.isfinite(), step.y1, y)
            self.found.append((which, state, self.resting))

    def finish(self, f: Evaluation, y: Tensor) -> Tensor:
        """All states `[time, *state]`; outputs never reached take the final state `y`."""
        self.rest(f, self.found[0][1])
        states: list[Tensor] = [y] * len(self.host)
        for which, state, inside in self.found:
            if inside.all():
                states[which] = state
            else:
                states[which] = torch.where(self.mask(f, inside), state, states[which])
        return torch.stack(states)

    def mask(self, f: Evaluation, inside: np.ndarray) -> Tensor:
        """A choice of samples, lined up with the state."""
        chosen = torch.from_numpy(inside).to(f.layout.device)
        return f.layout.spread(chosen.reshape(f.layout.batch_shape))
