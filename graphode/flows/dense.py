"""The solution at any time: from the steps that were kept, or by solving a little once more."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from graphode.flows.evaluation import Evaluation
from graphode.flows.host import on_host
from graphode.flows.method import KeptStep, Method
from graphode.flows.problem import Problem


def _read(problem: Problem, t: float | Tensor) -> tuple[Tensor, np.ndarray]:
    """`t` per sample, on the device and on the host, after checking that it lies in the span."""
    layout = problem.layout
    times = torch.as_tensor(t, dtype=layout.time_dtype, device=layout.device)
    if times.ndim and times.shape != layout.batch_shape:
        raise ValueError(
            f"`t` must be a number or have one value per sample, shape "
            f"{tuple(layout.batch_shape)}, but has shape {tuple(times.shape)}. Ask for several "
            f"times one by one, or give them to `solve` as `times`."
        )
    times = times.expand(layout.batch_shape)
    host = on_host(times.reshape(-1))
    low = np.minimum(problem.host[0], problem.host[-1])
    high = np.maximum(problem.host[0], problem.host[-1])
    slack = 1e-9 * (high - low)
    outside = (host < low - slack) | (host > high + slack) | ~np.isfinite(host)
    if outside.any():
        sample = int(np.flatnonzero(outside)[0])
        raise ValueError(
            f"`t` must lie between the first and last output times, "
            f"[{low[sample]:.6g}, {high[sample]:.6g}], but is {host[sample]:.6g}. Solve with a "
            f"longer span."
        )
    return times, host


class KeptSteps:
    """Interpolates the steps a solve has kept; after a terminal event it rests at `final`."""

    def __init__(
        self,
        problem: Problem,
        method: Method,
        f: Evaluation,
        kept: list[KeptStep],
        final: Tensor,
    ) -> None:
        self.problem, self.method, self.f = problem, method, f
        self.kept, self.final = kept, final

    def __call__(self, t: float | Tensor) -> Tensor:
        """The state at `t`."""
        times, host = _read(self.problem, t)
        layout = self.problem.layout
        direction = np.sign(self.problem.host[-1] - self.problem.host[0])
        state = self.problem.y0.to(layout.working_dtype)
        way = (host - self.problem.host[0]) * direction
        # At the start the state is y0, but a time with a gradient gets it from interpolation.
        wanted = torch.is_grad_enabled() and (
            self.problem.times.requires_grad or times.requires_grad
        )
        waiting = way >= 0 if wanted else way > 0
        for kept in self.kept:
            inside = waiting & kept.moved & ((kept.end - host) * direction >= 0)
            if inside.any():
                state = self._place(kept, times, inside, state)
                waiting = waiting & ~inside
            if not waiting.any():
                break
        if waiting.any():
            # At rest after a terminal event, or beyond the last step by a rounding error.
            state = torch.where(self._chosen(waiting), self.final, state)
        return state.to(layout.dtype)

    def _place(self, kept: KeptStep, times: Tensor, inside: np.ndarray, state: Tensor) -> Tensor:
        step = kept.step
        mask = torch.from_numpy(inside).to(times.device).reshape(times.shape)
        dt = torch.as_tensor(step.dt, dtype=times.dtype, device=times.device)
        theta = torch.where(mask, (times - step.t) / torch.where(dt == 0, 1.0, dt), 1.0)
        value = self.method.interpolate(self.f, step, theta[None])[0]
        return value if inside.all() else torch.where(self._chosen(inside), value, state)

    def _chosen(self, samples: np.ndarray) -> Tensor:
        layout = self.problem.layout
        mask = torch.from_numpy(samples).to(layout.device).reshape(layout.batch_shape)
        return layout.spread(mask)


class SolveAgain:
    """Integrates from the last output time before `t`, where no steps were kept.

    Args:
        problem: The problem that was solved.
        states: Its states at the output times.
        end_times: Where each sample stopped; there it rests.
        flow: Solves from states at times `[*batch]` to times `[*batch]`; the last argument is
            the part of its span that each sample has to go, for methods that count steps.
    """

    def __init__(
        self,
        problem: Problem,
        states: Tensor,
        end_times: Tensor,
        flow: Callable[[Tensor, Tensor, Tensor, np.ndarray], Tensor],
    ) -> None:
        self.problem, self.states, self.end_times, self.flow = problem, states, end_times, flow

    def __call__(self, t: float | Tensor) -> Tensor:
        """The state at `t`."""
        times, host = _read(self.problem, t)
        grid, layout = self.problem.host, self.problem.layout
        direction = np.sign(grid[-1] - grid[0])
        end = on_host(self.end_times.reshape(-1))
        stopped = (host - end) * direction > 0
        chosen = torch.from_numpy(stopped).to(times.device).reshape(times.shape)
        times, host = torch.where(chosen, self.end_times, times), np.where(stopped, end, host)
        grid = np.where((grid - end) * direction > 0, end, grid)
        before = ((grid - host) * direction <= 0).sum(axis=0).clip(min=1) - 1
        reached = grid[before, np.arange(grid.shape[1])]
        index = torch.from_numpy(before).to(times.device).reshape(layout.batch_shape)
        index = layout.spread(index).expand(layout.shape)
        state = self.states.gather(0, index[None])[0]
        span = np.abs(self.problem.host[-1] - self.problem.host[0])
        way = np.abs(host - reached)
        part = np.divide(way, span, out=np.zeros_like(way), where=span > 0)
        start = torch.from_numpy(reached).to(times.device, times.dtype).reshape(times.shape)
        return self.flow(state, self._with_gradient(start, before), times, part)

    def _with_gradient(self, start: Tensor, before: np.ndarray) -> Tensor:
        """`start` with the gradient of the output times `before` that it is.

        The state there moves along the flow with its time, which does not move the solution.
        After a terminal event a sample rests whatever the output time.
        """
        index = torch.from_numpy(before).to(start.device).reshape(*start.shape, 1)
        own = self.problem.times.expand(*start.shape, -1).gather(-1, index)[..., 0]
        return torch.where(own == start, own, start)
