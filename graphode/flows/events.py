"""Events: zero crossings of g(t, y), located on the dense output of a step.

A crossing is found by the sign of g at both ends of a step, bracketed by regula falsi (Illinois)
with some bisection, and made differentiable by the implicit function theorem. With g(t*, y*) = 0,

    dt* = − dg / (∂g/∂t + ∂g/∂y · y′),

one Newton correction whose value is zero and whose derivative is this one. Two crossings inside
one step are not seen: bound the step through the tolerances if that matters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphode.flows.evaluation import Evaluation
from graphode.flows.implicit_function import depends_on_more
from graphode.flows.layout import Layout
from graphode.flows.method import Method, Step
from graphode.flows.solution import EventRecord

EventFunction = Callable[[Tensor, Tensor], Tensor]

_ITERATIONS = 200  # enough for bisection alone; a smooth g needs about 10


@dataclass(frozen=True)
class Event:
    """A scalar function of time and state whose zeros are wanted.

    Args:
        function: `g(t, y)`, one value per sample: shape `[*batch]`, trailing ones allowed. It
            receives `t` and `y` as a field does, and sees the whole batch.
        terminal: Whether a sample stops at its first zero.
        direction: +1 for zeros where g grows, −1 where it falls, 0 for both.
    """

    function: EventFunction
    terminal: bool = False
    direction: int = 0

    def __post_init__(self) -> None:
        if self.direction not in (-1, 0, 1):
            raise ValueError(
                f"`direction` must be -1, 0 or 1, but is {self.direction!r}. Use 0 for crossings "
                f"in both directions."
            )

    def value(self, layout: Layout, t: Tensor, y: Tensor) -> Tensor:
        """g, `[*batch]`."""
        g = self.function(layout.field_time(t), y.to(layout.dtype))
        if not isinstance(g, Tensor) or g.numel() != layout.batch_shape.numel():
            shape = tuple(g.shape) if isinstance(g, Tensor) else type(g).__name__
            raise ValueError(
                f"An event function must return one value per sample, shape "
                f"{tuple(layout.batch_shape)}, but returned {shape}. Reduce over the state, for "
                f"example with `.amin(dim=(-2, -1))`."
            )
        return g.reshape(layout.batch_shape)


def read_events(
    events: Event | EventFunction | Sequence[Event | EventFunction],
) -> tuple[Event, ...]:
    """One event or several; a function alone is an event that nobody stops at."""
    several = events if isinstance(events, Sequence) else (events,)
    for event in several:
        if not isinstance(event, Event) and not callable(event):
            raise TypeError(
                f"`events` must be a `graphode.Event` or a function g(t, y), or a list of them, "
                f"but holds {event!r}. Write for example `Event(lambda t, y: y[..., 0])`."
            )
    return tuple(event if isinstance(event, Event) else Event(event) for event in several)


class EventTracker:
    """Watches the accepted steps of a solve.

    Args:
        events: The event functions.
        f: The field.
        t0: Start times `[*batch]`.
        y0: Start states.
    """

    def __init__(self, events: tuple[Event, ...], f: Evaluation, t0: Tensor, y0: Tensor) -> None:
        self.events, self.f = events, f
        self.layout = f.layout
        with torch.no_grad():
            self.values = [event.value(f.layout, t0, y0) for event in events]
        self.found: list[list[tuple[Tensor, Tensor, Tensor]]] = [[] for _ in events]
        self.stopped: tuple[Tensor, Tensor] | None = None

    def watch(
        self, method: Method, step: Step, accept: Tensor, end: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Locate the crossings of a step.

        Returns:
            Where each sample is now (earlier than `end` if it stopped), and which stopped.
        """
        crossings, stops = [], []
        first_stop = torch.full_like(end, torch.inf)
        for index, event in enumerate(self.events):
            before = self.values[index]
            with torch.no_grad():
                after = event.value(self.layout, end, step.y1)
            # A zero at the start of a step belongs to the step before.
            crossed = accept & (before != 0) & (before.sign() != after.sign())
            if event.direction:
                crossed &= (after - before).sign() == event.direction
            self.values[index] = torch.where(accept, after, before)
            if not bool(crossed.any()):
                crossings.append(None)
                continue
            # What interpolation adds to a step needs a gradient, which `_locate` does without.
            method.interpolate(self.f, step, torch.zeros_like(end)[None])
            theta = _locate(method, self.f, step, event, before, after, crossed)
            crossings.append((crossed, theta))
            if event.terminal:
                stop = torch.where(crossed, theta, torch.inf)
                first_stop = torch.minimum(first_stop, stop)
        for index, crossing in enumerate(crossings):
            if crossing is None:
                continue
            crossed, theta = crossing
            crossed = crossed & (theta <= first_stop)
            if bool(crossed.any()):
                event = self.events[index]
                time, state = _touch(method, self.f, step, event, theta)
                self.found[index].append((crossed, time, state))
                if event.terminal:
                    stops.append((crossed, time, state))
        stopped = first_stop.isfinite()
        self.stopped = None
        if stops:
            # Whichever came first: later crossings are not among them.
            final = step.y1
            for who, time, state in stops:
                end = torch.where(who, time.detach(), end)
                final = torch.where(self.layout.spread(who), state, final)
            self.stopped = (stopped, final)
        return end, stopped

    def settle(self, y: Tensor) -> Tensor:
        """Rest the samples that have just stopped at the state of their event."""
        if self.stopped is None:
            return y
        who, state = self.stopped
        return torch.where(self.layout.spread(who), state, y)

    def records(self) -> tuple[EventRecord, ...]:
        """All crossings, padded to the same count."""
        return tuple(self._record(found) for found in self.found)

    def _record(self, found: list[tuple[Tensor, Tensor, Tensor]]) -> EventRecord:
        layout = self.layout
        counts = torch.zeros(layout.batch_shape, dtype=torch.int64, device=layout.device)
        if not found:
            empty = torch.empty(0, dtype=layout.working_dtype, device=layout.device)
            return EventRecord(
                counts,
                empty.to(layout.time_dtype).reshape(0, *layout.batch_shape),
                empty.to(layout.dtype).reshape(0, *layout.shape),
            )
        ranks = []
        for who, _, _ in found:
            ranks.append(torch.where(who, counts, -1))
            counts = counts + who
        times, states = [], []
        for rank in range(int(counts.max())):
            time = torch.full_like(found[0][1], torch.nan)
            state = torch.full_like(found[0][2], torch.nan)
            for position, (_, event_time, event_state) in zip(ranks, found, strict=True):
                time = torch.where(position == rank, event_time, time)
                state = torch.where(layout.spread(position == rank), event_state, state)
            times.append(time)
            states.append(state.to(layout.dtype))
        return EventRecord(counts, torch.stack(times), torch.stack(states))


@torch.no_grad()
def _locate(
    method: Method,
    f: Evaluation,
    step: Step,
    event: Event,
    before: Tensor,
    after: Tensor,
    crossed: Tensor,
) -> Tensor:
    """θ in [0, 1] of the crossing per sample, to the rounding of the state."""
    low = torch.zeros(f.layout.batch_shape, dtype=f.layout.time_dtype, device=f.layout.device)
    high = torch.ones_like(low)
    g_low, g_high = before.to(low.dtype), after.to(low.dtype)
    tolerance = 4 * torch.finfo(f.layout.working_dtype).eps
    went_left = went_right = torch.zeros_like(crossed)
    for iteration in range(_ITERATIONS):
        middle = (low + high) / 2
        if iteration % 4 < 3:
            secant = low - g_low * (high - low) / (g_high - g_low)
            # Never quite at an end: a point beside the zero is followed by one beyond it.
            secant = secant.clamp(low + tolerance / 2, high - tolerance / 2)
            middle = torch.where(secant.isfinite(), secant, middle)
        y = method.interpolate(f, step, middle[None])[0]
        g = event.value(f.layout, step.t + middle * step.dt, y).to(low.dtype)
        left = g.sign() == g_low.sign()
        # Illinois: an end that stays a second time counts half, or it would stay for ever.
        g_low = torch.where(left, g, torch.where(went_right, g_low / 2, g_low))
        g_high = torch.where(left, torch.where(went_left, g_high / 2, g_high), g)
        low, high = torch.where(left, middle, low), torch.where(left, high, middle)
        went_left, went_right = left, ~left
        closed = (high - low <= tolerance) | (g_high == 0) | ~crossed
        if bool(closed.all()):
            break
    return high


def _touch(
    method: Method, f: Evaluation, step: Step, event: Event, theta: Tensor
) -> tuple[Tensor, Tensor]:
    """Time and state of a crossing, with their derivatives.

    Where g has no derivative, as a step function, the time has none either.
    """
    time, state = step.t + theta * step.dt, method.interpolate(f, step, theta[None])[0]
    if not torch.is_grad_enabled():
        return time, state
    position = theta.detach().requires_grad_()
    value = event.value(
        f.layout, step.t + position * step.dt, method.interpolate(f, step, position[None])[0]
    )
    # `value` depends on `position` too, but that leaf is nobody's input.
    if not depends_on_more(value, position):
        return time.detach(), state
    (slope,) = torch.autograd.grad(
        value.sum(), position, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    slope = torch.where(slope == 0, 1.0, slope)
    correction = -(value - value.detach()) / slope.detach()
    moved = theta + correction.to(theta.dtype)
    return step.t + moved * step.dt, method.interpolate(f, step, moved[None])[0]
