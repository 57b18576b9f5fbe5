"""Who flows when: the legs between jumps, each sample from one of its own times to another.

A step that a sample does not have (padding) is no time of its own: the leg before it goes on to
the sample's next time, and at the step itself that sample rests. All samples of a batch make each
leg together, as one solve. The leg that begins at a sample's time t_k ends at its next one, or
after the last at its last query; queries with t_k < q ≤ t_{k+1} belong to it. How they are reached
is said in `legs`.

Which time is which is decided on the host, after one transfer; the times themselves are gathered
on the device, so that they keep their gradients.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from graphode.hybrid.validation import check_order, check_queries


@dataclass(frozen=True, eq=False)
class Leg:
    """A stretch of flow of the whole batch.

    Attributes:
        start: Where each sample begins, `[*batch]`.
        end: Where it ends; at rest where both are equal.
        moves: Whether any sample moves.
        columns: The queries that some sample has here.
        moments: When these are, `[*batch, columns]`; at an end of the leg where not inside.
        inside: Whose query it is, `[*batch, columns]`; None for everyone's.
        at_end: Whether all of them are at the end of their samples' legs.
        goes_on: Whether the state at the end is needed for more than queries there.
        order: The columns of each sample in the order of time, `[samples, columns]` on the host;
            None where the host must not be asked.
        length: How long the leg of each sample is, `[samples]` on the host; None likewise.
    """

    start: Tensor
    end: Tensor
    moves: bool
    columns: list[int]
    moments: Tensor
    inside: Tensor | None
    at_end: bool
    goes_on: bool
    order: np.ndarray | None
    length: np.ndarray | None

    def of(self, rows: np.ndarray) -> "Leg":
        """The leg of some samples of a batch of one dimension."""
        assert self.order is not None
        assert self.length is not None
        index, length = torch.from_numpy(rows).to(self.start.device), self.length[rows]
        return replace(
            self,
            start=self.start[index],
            end=self.end[index],
            moves=bool(length.any()),
            moments=self.moments[index],
            inside=None if self.inside is None else self.inside[index],
            order=self.order[rows],
            length=length,
        )


@dataclass(frozen=True, eq=False)
class Schedule:
    """The legs before and after the jump of each step; step 0 is the start itself, without jump.

    Attributes:
        before: The legs that lead to a step.
        after: The legs that come from it.
        answered: Which queries these legs answer rightly, `[*batch, queries]`; None for all.
    """

    before: list[Leg | None]
    after: list[Leg | None]
    answered: Tensor | None = None


def plan(
    origin: Tensor | None, times: Tensor, valid: Tensor, queries: Tensor, causal: bool
) -> Schedule:
    """The legs of a batch.

    Args:
        origin: When the state at the start is valid, `[*batch]`; None for the first valid step.
        times: Of the steps, `[*batch, steps]`.
        valid: Which samples have the step.
        queries: `[*batch, queries]`
        causal: Whether a leg belongs to the step it comes from, whose graph it uses; else to the
            step it leads to. The way to queries after the last step is always the former.
    """
    steps = times.shape[-1]
    host_times, host_valid, host_queries, host_origin = _to_host(times, valid, queries, origin)
    check_order(host_times, host_valid, host_origin)
    from_state = origin is not None
    if origin is None:
        first = host_valid.argmax(1)
        index = torch.from_numpy(first).to(times.device).reshape(*times.shape[:-1], 1)
        origin = times.gather(-1, index)[..., 0]
        host_origin = host_times[np.arange(len(first)), first]
    assert host_origin is not None
    check_queries(host_queries, host_origin, from_state)

    points = torch.cat([origin[..., None], times, queries], -1)
    host = np.concatenate([host_origin[:, None], host_times, host_queries], 1)
    has_point = np.ones((len(host), 1 + steps), dtype=bool)
    has_point[:, 1:] = host_valid
    route = _Route(points, host, has_point, host_queries.shape[1])
    before = [None if causal else route.leading_to(step) for step in range(steps + 1)]
    after = [route.coming_from(step, causal) for step in range(steps + 1)]
    return Schedule(before, after)


def _to_host(times: Tensor, valid: Tensor, queries: Tensor, origin: Tensor | None) -> list:
    """Everything in one transfer, `[samples, …]`; the origin is `[samples]` or None."""
    parts = [times, valid.to(times.dtype), queries]
    parts += [] if origin is None else [origin[..., None]]
    joined = torch.cat([part.detach() for part in parts], -1)
    rows = joined.reshape(-1, joined.shape[-1]).numpy(force=True)
    # Slices: NumPy's ways to split, insert and take cost more than all else of a streamed step.
    steps, end = times.shape[-1], 2 * times.shape[-1] + queries.shape[-1]
    found = [rows[:, :steps], rows[:, steps : 2 * steps] > 0, rows[:, 2 * steps : end]]
    return [*found, None if origin is None else rows[:, end]]


class _Route:
    """Points in time of each sample (start, steps, queries), and which follows which.

    Args:
        points: `[*batch, 1 + steps + queries]`
        host: The same on the host, `[samples, …]`.
        valid: Which of the first 1 + steps a sample has, `[samples, 1 + steps]`.
        queries: How many of the points are queries.
    """

    def __init__(self, points: Tensor, host: np.ndarray, valid: np.ndarray, queries: int) -> None:
        self.points, self.host, self.valid = points, host, valid
        count = valid.shape[1]
        number = np.arange(count)
        self.rows = np.arange(len(host))
        self.latest = np.maximum.accumulate(np.where(valid, number, 0), 1)
        upcoming = np.minimum.accumulate(np.where(valid, number, count)[:, ::-1], 1)[:, ::-1]
        self.following = np.full_like(upcoming, -1)
        self.following[:, :-1] = np.where(upcoming == count, -1, upcoming)[:, 1:]
        self.first_query, self.queries = count, host[:, count:]
        # Where a query comes from: the sample's last time before it, else the start.
        own = np.where(valid, host[:, :count], np.inf)
        earlier = own[:, None, :] < self.queries[:, :, None]
        self.origin_of = np.where(earlier, number, 0).max(-1)
        self.target_of = self.following[self.rows[:, None], self.origin_of]
        self.horizon = self.latest[:, -1]
        if queries:
            furthest = self.queries.argmax(1)
            beyond = self.queries[self.rows, furthest] > host[self.rows, self.horizon]
            self.horizon = np.where(beyond, count + furthest, self.horizon)

    def leading_to(self, step: int) -> Leg | None:
        """From the sample's time before `step` to `step`."""
        if step == 0:
            return None
        start, end = self.latest[:, step - 1], self.latest[:, step]
        return self._leg(start, end, self.target_of == step, goes_on=True)

    def coming_from(self, step: int, causal: bool) -> Leg | None:
        """From `step` to the sample's next time or, after its last, to the horizon."""
        start, following = self.latest[:, step], self.following[:, step]
        is_last = following < 0
        end = np.where(is_last, self.horizon, following if causal else start)
        has = self.origin_of == step
        if not causal:
            has &= self.target_of < 0
        end = np.where(self.valid[:, step], end, start)
        return self._leg(start, end, has, goes_on=not is_last.all())

    def _leg(
        self, start: np.ndarray, end: np.ndarray, has: np.ndarray, goes_on: bool
    ) -> Leg | None:
        start_time, end_time = self.host[self.rows, start], self.host[self.rows, end]
        moves = bool((start_time != end_time).any())
        columns = np.flatnonzero(has.any(0))
        if not moves and not len(columns):
            return None
        has, asked = has[:, columns], self.queries[:, columns]
        # Who has no such query waits at the nearer end, so that sorted queries stay sorted.
        side = np.where(asked <= start_time[:, None], start[:, None], end[:, None])
        where = np.where(has, self.first_query + columns, side)
        when = self.host[self.rows[:, None], where]
        index = np.concatenate([start[:, None], end[:, None], where], 1)
        chosen = self.points.gather(-1, self._on_device(index))
        return Leg(
            start=chosen[..., 0],
            end=chosen[..., 1],
            moves=moves,
            columns=columns.tolist(),
            moments=chosen[..., 2:],
            inside=None if has.all() else self._on_device(has),
            at_end=bool((when == end_time[:, None])[has].all()),
            goes_on=goes_on,
            order=when.argsort(1, kind="stable"),
            length=np.abs(end_time - start_time),
        )

    def _on_device(self, values: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(values).to(self.points.device)
        return tensor.reshape(*self.points.shape[:-1], values.shape[1])


def traced_plan(
    origin: Tensor | None, times: Tensor, valid: Tensor, queries: Tensor, causal: bool
) -> Schedule:
    """The same without asking the host, for programs that are compiled or captured.

    Nothing can be refused here, and where a query lies is not known: a leg that might have it would
    solve for it. So only the last leg has queries, and `answered` says whose are after all steps,
    and these in order.
    """
    begins_at_rest = origin is None
    if origin is None:
        origin = torch.where(valid, times, torch.inf).amin(-1)
    own = torch.cat([origin[..., None], torch.where(valid, times, origin[..., None])], -1)
    valid = torch.cat([torch.ones_like(valid[..., :1]), valid], -1)
    latest = own.cummax(-1)[0]
    upcoming = torch.where(valid, own, torch.inf).flip(-1).cummin(-1)[0].flip(-1)
    before: list[Leg | None] = [None]
    after: list[Leg | None] = []

    def leg(start: Tensor, end: Tensor, columns: list[int]) -> Leg:
        moments = queries[..., : len(columns)]
        return Leg(
            start, end, True, columns, moments, None, len(columns) == 1, not columns, None, None
        )

    last = times.shape[-1]
    for step in range(last):
        start, end = latest[..., step], upcoming[..., step + 1]
        end = torch.where(valid[..., step] & end.isfinite(), end, start)
        rests = not causal or (begins_at_rest and step == 0)
        after.append(None if rests else leg(start, end, []))
        before.append(None if causal else leg(start, latest[..., step + 1], []))
    after.append(leg(latest[..., last], queries.amax(-1), list(range(queries.shape[-1]))))

    first = 1 if begins_at_rest else 0
    rises = (own[..., first:-1] < upcoming[..., first + 1 :]) | ~valid[..., first:-1]
    is_after = queries > latest[..., last:]
    if not begins_at_rest:  # the state itself can be read, unless a jump has changed it since
        is_held = ~valid[..., 1:].any(-1, keepdim=True)
        is_after = is_after | (is_held & (queries == latest[..., last:]))
    return Schedule(before, after, is_after & rises.all(-1, keepdim=True))
