"""One leg of a hybrid system: the flow of a whole batch to its next times, and to its queries.

A solver that chooses its own steps is read at the queries on its way, to its tolerance. With a
fixed number of steps every query has a flow of its own.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphode.fields import pack, unpack
from graphode.fields.transport import transport
from graphode.flows import Flow, SolveError, Stochastic
from graphode.flows.layout import Layout
from graphode.flows.problem import Problem, check_finite
from graphode.flows.solve import solve_problem
from graphode.hybrid.schedule import Leg

# Numbers in the state of a group (measured, 64 × 228 × 46: half or twice as many are no faster).
GROUP_SIZE = 1 << 17


def travel(
    flow: Any, h: Tensor, graph: Any, leg: Leg, by_length: bool
) -> tuple[Tensor, list[Tensor]]:
    """The state at the end of a leg, and at each of its queries.

    Args:
        flow: A `Flow`, anything called as flow(h, graph, t0, t1), or None: the state is held.
        h: The state at the leg's start.
        graph: The graph on the way.
        leg: From where to where.
        by_length: Whether samples may be solved in other company than their batch's: those whose
            legs are of like length apart from others, and several queries at a time.
    """
    regroups = by_length and h.device.type == "cpu" and getattr(graph, "num_graphs", 1) == 1
    groups = _groups(flow, h, leg) if regroups else []
    if len(groups) < 2:
        return _together(flow, h, graph, leg, regroups)
    pieces = []
    for rows in groups:
        own = h.index_select(0, torch.from_numpy(rows))
        try:
            end, reached = _together(flow, own, graph, leg.of(rows), regroups)
        except SolveError:  # which numbers the samples of a group
            return _together(flow, h, graph, leg, regroups)
        pieces.append([end, *reached])
    back = torch.from_numpy(np.concatenate(groups)).argsort()
    end, *reached = (torch.cat(part).index_select(0, back) for part in zip(*pieces, strict=True))
    return end, reached


def _groups(flow: Any, h: Tensor, leg: Leg) -> list[np.ndarray]:
    """Which samples to solve together: those that take about as many steps, large enough to pay.

    A solve calls the field for the whole batch until its last sample has arrived. On a CPU, which
    is as slow as the batch is large, most of that would be spent on samples that have.
    """
    length = leg.length
    if length is None or (length == length[0]).all():
        return []
    suits = (
        _chooses_its_steps(flow)
        and h.ndim == 3
        # Masks belong to a solve: all samples of a batch have the same.
        and not any(isinstance(part, Stochastic) and part.is_active for part in flow.modules())
    )
    if not suits:
        return []
    count = min(len(h), max(1, h.numel() // GROUP_SIZE))
    return np.array_split(length.argsort(kind="stable"), count)


def _chooses_its_steps(flow: Any) -> bool:
    if not isinstance(flow, Flow):
        return False
    return flow.options.num_steps is None and flow.options.step_size is None


def _together(
    flow: Any, h: Tensor, graph: Any, leg: Leg, may_share: bool
) -> tuple[Tensor, list[Tensor]]:
    if flow is None or not leg.moves:
        return h, [h] * len(leg.columns)
    if not leg.columns or leg.at_end:
        end = transport(flow, h, graph, leg.start, leg.end)
        return end, [end] * len(leg.columns)
    if _chooses_its_steps(flow) and leg.order is not None:
        return _read_on_the_way(flow, h, graph, leg, leg.order)
    return _each_on_its_own(flow, h, graph, leg, may_share)


def _each_on_its_own(
    flow: Any, h: Tensor, graph: Any, leg: Leg, may_share: bool
) -> tuple[Tensor, list[Tensor]]:
    """Every query by a flow of its own from the leg's start.

    A fixed number of steps divides the way that is gone: were queries read on the way to a later
    one, or to the next observation, answers would change with times that come after them.
    """
    moments = leg.moments
    if leg.goes_on:
        moments = torch.cat([moments, leg.end[..., None]], -1)
    # Small states are solved several at a time; large ones would only leave the caches.
    count = 1
    if may_share and isinstance(flow, Flow):
        count = max(1, GROUP_SIZE // max(1, h.numel()))
    reached: list[Tensor] = []
    for some in moments.split(count, -1):
        if some.shape[-1] == 1:
            reached.append(transport(flow, h, graph, leg.start, some[..., 0]))
            continue
        start = leg.start[..., None].expand_as(some)
        copies = h[..., None, :, :].expand(*some.shape, *h.shape[-2:])
        reached += transport(flow, copies, graph, start, some).unbind(-3)
    return (reached.pop() if leg.goes_on else h), reached


def _read_on_the_way(
    flow: Flow, h: Tensor, graph: Any, leg: Leg, order: np.ndarray
) -> tuple[Tensor, list[Tensor]]:
    """One solve, whose steps do not depend on who asks: queries are read from dense output."""
    z = pack(flow.field, h)
    layout = Layout.of(z, z.ndim - 2)
    batch = layout.batch_shape
    is_sorted = bool((order == np.arange(order.shape[1])).all())
    place = torch.from_numpy(order).to(z.device).reshape(leg.moments.shape)
    moments = leg.moments if is_sorted else leg.moments.gather(-1, place)
    times = torch.cat([leg.start[..., None], moments, leg.end[..., None]], -1)
    times = times.to(layout.time_dtype).expand(*batch, -1)
    # Unlike `Flow.solve`, times of a sample may repeat here: where it rests, or has fewer queries.
    host = times.detach().reshape(-1, times.shape[-1]).numpy(force=True).T
    if flow.options.on_failure == "raise":
        check_finite(z)
    problem = Problem(flow.field, (graph,), z, times, host, layout)
    states = unpack(flow.field, solve_problem(problem, flow.options).states)
    read = states[1:-1]
    if not is_sorted:
        back = place.argsort(-1).movedim(-1, 0)
        read = read.gather(0, back[..., None, None].expand(read.shape))
    return states[-1], list(read.unbind(0))
