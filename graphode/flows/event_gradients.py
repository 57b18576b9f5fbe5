"""Events under checkpoint and adjoint: find them first, then solve to them with gradients.

The crossings are located by a solve without gradients. Their times then become output times of a
solve whose states carry gradients, and the implicit function theorem moves times and states:

    t* = t − (g(t, y) − g)/ġ,   y* = y + f(t, y) (t* − t),   ġ = ∂g/∂t + ∂g/∂y · f.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from graphode.flows.evaluation import Evaluation
from graphode.flows.events import Event
from graphode.flows.host import on_host
from graphode.flows.integrate import Result, Settings, integrate
from graphode.flows.problem import Problem
from graphode.flows.solution import EventRecord
from graphode.flows.stochastic import SolveNoise


def solve_with_events(
    problem: Problem,
    settings: Settings,
    events: tuple[Event, ...],
    solve: Callable[[Problem], Result],
    noise: SolveNoise,
) -> Result:
    """Solve `problem` by `solve`, with the events it meets.

    Args:
        solve: Solves a problem with gradients to everything that wants them.
        noise: The masks of that solve.
    """
    f = Evaluation(problem.f, problem.args, problem.layout, noise)
    with torch.no_grad():
        plain = dataclasses.replace(settings, keep_steps=False)
        found = integrate(problem, plain, f, events=events)
    end = found.end_times
    batch = problem.layout.batch_shape
    outputs = problem.times.expand(*batch, -1)
    backwards = (outputs[..., -1] < outputs[..., 0])[..., None]
    # After a terminal event a sample rests: its later outputs are that event.
    resting = torch.where(backwards, outputs < end[..., None], outputs > end[..., None])
    outputs = torch.where(resting, end[..., None], outputs)
    crossings = [record.times.movedim(0, -1) for record in found.events]
    crossings = [torch.where(times.isnan(), end[..., None], times) for times in crossings]
    merged = torch.cat([outputs, *crossings], -1)
    order = torch.where(backwards, -merged.detach(), merged.detach()).argsort(dim=-1, stable=True)
    place = order.argsort(-1)
    times = merged.gather(-1, order)
    host = on_host(times.to(torch.float64)).reshape(-1, times.shape[-1]).T
    result = solve(dataclasses.replace(problem, times=times, host=np.ascontiguousarray(host)))
    assert result.states is not None
    states = _pick(result.states, place, problem)
    count = outputs.shape[-1]
    records = []
    for event, record in zip(events, found.events, strict=True):
        length = len(record.times)
        records.append(_move(event, record, states[count : count + length], f))
        count += length
    states = states[: outputs.shape[-1]]
    for event, record in zip(events, records, strict=True):
        if event.terminal and len(record.times):
            who = (resting & (record.counts > 0)[..., None]).movedim(-1, 0)
            states = torch.where(problem.layout.spread(who), record.states[0], states)
    result.stats.evaluations = result.stats.evaluations + found.stats.evaluations
    result.stats.field_calls += f.calls
    return dataclasses.replace(
        result,
        states=states,
        final=states[-1],
        status=found.status,
        end_times=end,
        events=tuple(records),
    )


def _pick(states: Tensor, place: Tensor, problem: Problem) -> Tensor:
    """Undo the sorting: `states [time, *state]` at `place [*batch, time]`."""
    index = problem.layout.spread(place.movedim(-1, 0)).expand(-1, *problem.layout.shape)
    return states.gather(0, index)


def _move(event: Event, record: EventRecord, states: Tensor, f: Evaluation) -> EventRecord:
    """`record` with the derivatives of its times and states."""
    times, moved = [], []
    layout = f.layout
    for t, y in zip(record.times, states, strict=True):
        valid = ~t.isnan()
        moment = torch.where(valid, t, 0.0)
        working = y.to(layout.working_dtype)
        slope = f(moment, working)
        with torch.enable_grad():
            at, state = moment.detach().requires_grad_(), working.detach().requires_grad_()
            value = event.value(layout, at, state)
            by_time, by_state = torch.zeros_like(at), torch.zeros_like(state)
            if value.requires_grad:  # a step function has no derivative, and moves nothing
                by_time, by_state = torch.autograd.grad(
                    value.sum(), [at, state], allow_unused=True, materialize_grads=True
                )
        rate = by_time + layout.dot(by_state, slope.detach()).to(by_time.dtype)
        value = event.value(layout, moment, working).to(moment.dtype)
        shift = -(value - value.detach()) / torch.where(rate == 0, 1.0, rate)
        times.append(torch.where(valid, moment + shift, torch.nan))
        shifted = working + layout.spread(shift).to(working.dtype) * slope
        moved.append(torch.where(layout.spread(valid), shifted, torch.nan).to(layout.dtype))
    if not times:
        return record
    return dataclasses.replace(record, times=torch.stack(times), states=torch.stack(moved))
