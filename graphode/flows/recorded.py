"""A solve that never asks the host: what can be compiled by torch or recorded as a CUDA graph.

Steps are fixed, and no value is looked at: what would raise becomes the status of a sample. Which
step an output time falls into is not known either, so that every step serves all of them, and
each takes what is its own.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from graphode.flows.evaluation import Evaluation
from graphode.flows.fixed import UniformGrid, march
from graphode.flows.gradients import Backprop, find_gradient
from graphode.flows.integrate import finite_status
from graphode.flows.layout import Layout
from graphode.flows.method import Method, Step
from graphode.flows.outputs import SNAP
from graphode.flows.problem import Times
from graphode.flows.solution import Solution, Stats

if TYPE_CHECKING:
    from graphode.flows.solve import Options


def check_recordable(options: "Options") -> None:
    """Refuse what cannot do without the host."""
    if not isinstance(find_gradient(options.gradient), Backprop):
        raise ValueError(
            f"Only a flow with gradient='backprop' can be compiled or captured, but this one "
            f"has gradient={options.gradient!r}. Call it in eager mode, or change it."
        )
    if not options.method.can_be_recorded:
        raise ValueError(
            f"Solver {options.solver!r} differentiates the field to solve an equation in every "
            f"step, which cannot be compiled or captured. Call the flow in eager mode, or use "
            f"an explicit solver."
        )
    if options.step_size is not None:
        raise ValueError(
            f"The number of steps must be known for a flow to be compiled or captured, but "
            f"`step_size={options.step_size}` counts them from the times. Give it `num_steps`."
        )


def recorded_times(times: Times, layout: Layout) -> Tensor:
    """`times` as a tensor, unchecked; its numbers are written on the device."""
    kind = {"dtype": layout.time_dtype, "device": layout.device}
    if isinstance(times, Tensor):
        return times.to(layout.device, layout.time_dtype)
    if isinstance(times, np.ndarray):
        return torch.as_tensor(times, **kind)
    return torch.stack(
        [t.to(**kind) if isinstance(t, Tensor) else torch.full((), t, **kind) for t in times]
    )


def solve_recorded(
    method: Method, f: Evaluation, y0: Tensor, times: Tensor, num_steps: int | None
) -> Solution:
    """Solve with fixed steps; `times` as for `graphode.solve`, and nobody checks them."""
    if num_steps is None:
        raise ValueError(
            "An adaptive solve decides its steps as it goes and cannot be compiled or captured. "
            "Give it `num_steps`, or call it in eager mode."
        )
    layout = f.layout
    grid = UniformGrid(times[..., 0], times[..., -1], num_steps)
    index, theta = _places(times, num_steps, layout)
    y, carry = y0.to(layout.working_dtype), None
    inner = y.expand(len(index), *y.shape)
    for number in range(num_steps):
        kept: list[Step] = []
        span = range(number, number + 1)
        y, carry, _ = march(method, f, y, grid, carry=carry, span=span, kept=kept)
        if len(index):
            inner = _served(method, f, kept[0], index == number, theta, inner)
            carry = kept[0].handed_over
    states = torch.cat([y0[None], inner.to(layout.dtype), y.to(layout.dtype)[None]])
    status = finite_status(layout, y)
    moving = (times[..., 0] != times[..., -1]).expand(layout.batch_shape).long()
    stats = Stats(
        evaluations=moving * f.calls,
        accepted=moving * num_steps,
        rejected=torch.zeros_like(moving),
        field_calls=f.calls,
        status=status,
    )
    end = times[..., -1].expand(layout.batch_shape)
    return Solution(times, states, stats, status, end, (), _no_dense_output)


def _places(times: Tensor, num_steps: int, layout: Layout) -> tuple[Tensor, Tensor]:
    """The step each inner output time falls into, and θ there, `[count, *batch]`."""
    by_time = times.movedim(-1, 0)
    if times.ndim == 1:
        by_time = by_time.reshape(-1, *(1 for _ in layout.batch_shape))
    by_time = by_time.expand(-1, *layout.batch_shape)
    span = by_time[-1] - by_time[0]
    way = (by_time[1:-1] - by_time[0]) / torch.where(span == 0, 1.0, span) * num_steps
    index = ((way.detach() - SNAP).ceil() - 1).clamp(0, num_steps - 1)
    return index, way - index


def _served(
    method: Method, f: Evaluation, step: Step, own: Tensor, theta: Tensor, states: Tensor
) -> Tensor:
    """`states` with those of the outputs that are the step's `own`."""
    place = torch.where(own, theta, 1.0)
    found = method.interpolate(f, step, place)
    if not theta.requires_grad:  # which comes by the interpolation, at the end of a step too
        # The end is y1 to the bit, as it is for the next step.
        found = torch.where(f.layout.spread((place - 1).abs() < SNAP), step.y1, found)
    return torch.where(f.layout.spread(own), found, states)


def _no_dense_output(t: float | Tensor) -> Tensor:
    del t
    raise RuntimeError(
        "A compiled or captured solve has no dense output. Give the times you want to `solve`."
    )
