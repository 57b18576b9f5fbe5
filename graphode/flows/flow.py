"""`Flow`: a field on a graph, and the solver that lets states move along it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.flows.capture import CapturedFlows
from graphode.flows.control import StepControl
from graphode.flows.counting import report
from graphode.flows.evaluation import Evaluation
from graphode.flows.events import Event, EventFunction, read_events
from graphode.flows.fixed import UniformGrid, march
from graphode.flows.gradients import Gradient
from graphode.flows.host import on_host
from graphode.flows.integrate import integrate
from graphode.flows.layout import Layout, SegmentedLayout, Time
from graphode.flows.masks import is_recorded, is_traced
from graphode.flows.method import Method
from graphode.flows.problem import (
    Problem,
    Times,
    check_finite,
    check_state,
    check_times,
    read_interval,
    read_times,
)
from graphode.flows.recorded import check_recordable
from graphode.flows.solution import Solution
from graphode.flows.solve import OnFailure, Options, final_state, record_problem, solve_problem
from graphode.flows.stochastic import name_masks


class Flow(nn.Module):
    """φ: the state at t0 moved to t1 along dh/dt = field(t, h, graph).

    Every dimension before `[nodes, channels]` is batch: each sample has its own times, steps and
    error norm, and does not notice the others. So has every graph of a batch of graphs whose
    states lie one after the other in the dimension of nodes.

    Args:
        field: `field(t, h, graph) -> dh`, of the shape of `h`. A module's parameters are the
            flow's. `t` is 0-d where all samples share it, else one value per sample (or member of
            an ensemble), shaped to broadcast, `[*batch, 1, 1]`: `t * torch.ones_like(h[..., :1])`
            is a channel of time in either case.
        capture: Record a fixed-step flow once as a CUDA graph, forward and backward, and replay
            it: no launch overhead, and values are checked nowhere. The graph argument and the
            times must be the same objects or values to be replayed, else it is recorded anew.
        solver, rtol, atol, num_steps, step_size, gradient, max_steps, min_step, control,
        on_failure: As for `graphode.solve`.

    Shapes:
        - **h:** `[*batch, nodes, channels]`; the result has the same shape.
        - **t0, t1:** numbers, or `[*batch]` (`[*batch, graphs]` for a ragged batch of graphs), or
          the first dimensions of it, such as `[members]`.
    """

    def __init__(
        self,
        field: Callable[..., Tensor],
        *,
        solver: str | Method = "dopri5",
        rtol: float = 1e-3,
        atol: float = 1e-4,
        num_steps: int | None = None,
        step_size: float | None = None,
        gradient: str | Gradient = "backprop",
        max_steps: int = 10_000,
        min_step: float = 0.0,
        control: StepControl | None = None,
        on_failure: OnFailure = "raise",
        capture: bool = False,
    ) -> None:
        super().__init__()
        self.field = field
        self.options = Options(
            solver=solver,
            rtol=rtol,
            atol=atol,
            num_steps=num_steps,
            step_size=step_size,
            gradient=gradient,
            max_steps=max_steps,
            min_step=min_step,
            control=control or StepControl(),
            on_failure=on_failure,
        )
        if capture and num_steps is None:
            raise ValueError(
                "`capture=True` records a fixed sequence of operations: it needs `num_steps`. An "
                "adaptive solve decides its steps as it goes and cannot be recorded."
            )
        self.captured = CapturedFlows() if capture else None
        # Attempts an adaptive solve makes when it is part of a captured program: see `capture`.
        self.recorded_attempts: int | None = None
        name_masks(self)

    def forward(
        self,
        h: Float[Tensor, "*batch nodes channels"],
        graph: Any = None,
        t0: float | Tensor | np.ndarray = 0.0,
        t1: float | Tensor | np.ndarray = 1.0,
    ) -> Float[Tensor, "*batch nodes channels"]:
        """The state at `t1`; where t1 = t0, `h` itself."""
        if self.captured is not None and h.is_cuda and not _traced(h):
            return self.captured(self._march, self.field, h, graph, t0, t1)
        t0, t1 = (torch.tensor(t.copy()) if isinstance(t, np.ndarray) else t for t in (t0, t1))
        if _traced(h):
            return self._march(h, graph, t0, t1)
        layout = self._layout(h, graph)
        if not isinstance(t0, Tensor) and not isinstance(t1, Tensor) and t0 == t1:
            return h
        times = read_interval(t0, t1, layout)
        host = on_host(times).reshape(-1, 2).T
        if not np.isfinite(host).all():
            raise ValueError(
                f"`t0` and `t1` must be finite, but are {t0} and {t1}. Check the observation times."
            )
        host = np.broadcast_to(host, (2, layout.batch_shape.numel()))
        problem = Problem(self.field, (graph,), h, times, host, layout)
        return final_state(problem, self.options)

    def solve(
        self,
        h: Float[Tensor, "*batch nodes channels"],
        graph: Any = None,
        times: Times = (0.0, 1.0),
        *,
        events: Event | EventFunction | Sequence[Event | EventFunction] = (),
        dense: bool = True,
    ) -> Solution:
        """The states at `times`, with cost, status and dense output; see `graphode.solve`."""
        if _traced(h):
            return record_problem(
                self.field, (graph,), h, times, layout_of(h, graph), self.options, events
            )
        layout = self._layout(h, graph)
        moments = read_times(times, layout)
        host = check_times(moments, layout)
        problem = Problem(self.field, (graph,), h, moments, host, layout)
        return solve_problem(problem, self.options, read_events(events), dense)

    def _layout(self, h: Tensor, graph: Any) -> Layout:
        check_state(h, 0)
        if h.ndim < 2:
            raise ValueError(
                f"A flow's state must be [..., nodes, channels], but has shape {tuple(h.shape)}. "
                f"Add a channel dimension with `h[..., None]`, or use `graphode.solve`."
            )
        if self.options.on_failure == "raise":
            check_finite(h)
        return layout_of(h, graph)

    def _march(self, h: Tensor, graph: Any, t0: float | Tensor, t1: float | Tensor) -> Tensor:
        """A solve that never asks the host: what can be compiled and captured."""
        options = self.options
        check_recordable(options)
        layout = layout_of(h, graph)
        f = Evaluation(self.field, (graph,), layout)
        start, end = (_moment(t, layout) for t in (t0, t1))
        if options.num_steps is None:
            return self._attempts(f, h, start, end)
        grid = UniformGrid(start, end, options.num_steps)
        y, _, _ = march(options.method, f, h.to(layout.working_dtype), grid)
        return y.to(layout.dtype)

    def _attempts(self, f: Evaluation, h: Tensor, start: Time, end: Time) -> Tensor:
        """An adaptive solve of a known number of attempts."""
        if self.recorded_attempts is None:
            raise ValueError(
                "An adaptive flow decides its steps as it goes, so that it can be compiled or "
                "captured only for a number of attempts that is known: set "
                "`flow.recorded_attempts` (and look at `record_stats` for samples that needed "
                "more), give it `num_steps`, or call it in eager mode."
            )
        layout = f.layout
        shape, kind = layout.batch_shape, {"dtype": layout.time_dtype, "device": layout.device}
        ends = [
            t.expand(shape) if isinstance(t, Tensor) else torch.full(shape, t, **kind)
            for t in (start, end)
        ]
        # The host's copy of the times is for outputs, of which there are none.
        host = np.zeros((2, shape.numel()))
        problem = Problem(f.f, f.args, h, torch.stack(ends, -1), host, layout)
        settings = self.options.settings(host, keep_steps=False)
        result = integrate(problem, settings, f, only_final=True, attempts=self.recorded_attempts)
        report(result.stats)
        return result.final

    def extra_repr(self) -> str:
        """Solver, steps or tolerances, and gradient."""
        options = self.options
        steps = f"rtol={options.rtol:g}, atol={options.atol:g}"
        if options.num_steps is not None:
            steps = f"num_steps={options.num_steps}"
        elif options.step_size is not None:
            steps = f"step_size={options.step_size}"
        return f"solver={options.solver!r}, {steps}, gradient={options.gradient!r}"


def layout_of(h: Tensor, graph: Any) -> Layout:
    """Every leading dimension is batch, and so is every graph of a ragged batch of graphs.

    Of the graph only its blocks are asked for: how many, and whose each node is.
    """
    if getattr(graph, "num_graphs", 1) > 1 and graph.num_nodes == h.shape[-2]:
        return SegmentedLayout(
            h.shape, h.ndim - 1, h.dtype, h.device, graph.node_graph, tuple(graph.sizes)
        )
    return Layout.of(h, h.ndim - 2)


def _traced(h: Tensor) -> bool:
    """Whether operations are being compiled, captured or recorded, so that no value is known."""
    return is_traced() or (isinstance(h, Tensor) and is_recorded(h.device))


def _moment(t: float | Tensor, layout: Layout) -> Time:
    return t.to(layout.device, layout.time_dtype) if isinstance(t, Tensor) else t
