"""Solve one problem in one go, by whichever loop fits; gradients are autograd's or nobody's."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphode.flows.adaptive import AdaptiveSolve, Tolerances
from graphode.flows.control import StepControl, first_step, lone_first_step
from graphode.flows.evaluation import Evaluation
from graphode.flows.events import Event, EventTracker
from graphode.flows.fixed import Grid, UniformGrid, equal_steps, march
from graphode.flows.layout import Layout, Time
from graphode.flows.lone import LoneSolve
from graphode.flows.method import KeptStep, Method, Step
from graphode.flows.outputs import Outputs
from graphode.flows.problem import Problem
from graphode.flows.recorder import Recorder
from graphode.flows.runge_kutta import RungeKutta
from graphode.flows.solution import EventRecord, SolveError, Stats, Status, describe_failure


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to solve.

    Attributes:
        num_steps: Steps over the whole span; None for an adaptive solve.
        own_steps: The same per sample, `[samples]`, where some have fewer; else None.
        raise_on_failure: Whether a failed sample is an exception or a status.
        keep_steps: Whether to keep what dense output needs.
    """

    method: Method
    rtol: float
    atol: float
    num_steps: int | None
    own_steps: np.ndarray | None
    max_steps: int
    min_step: float
    control: StepControl
    raise_on_failure: bool
    keep_steps: bool

    @property
    def tolerances(self) -> Tolerances | None:
        """What an adaptive solve is held to, None for fixed steps."""
        if self.num_steps is not None:
            return None
        return Tolerances(
            rtol=self.rtol,
            atol=self.atol,
            control=self.control,
            max_steps=self.max_steps,
            min_step=self.min_step,
        )


@dataclass
class Result:
    """What a loop brings back; `states` is None where only the final state was wanted."""

    states: Tensor | None
    final: Tensor
    stats: Stats
    status: Tensor
    end_times: Tensor
    events: tuple[EventRecord, ...]
    kept: list[KeptStep]


def fixed_grid(problem: Problem, times: Tensor, settings: Settings) -> Grid:
    """Equal steps; shared times without a gradient become floats, the cheapest to compute with."""
    assert settings.num_steps is not None
    if settings.own_steps is not None:
        start, end = problem.per_sample(0, times), problem.per_sample(-1, times)
        return equal_steps(start, end, settings.own_steps, problem.host)
    t0: Time
    t1: Time
    if problem.shared_times and not times.requires_grad:
        t0, t1 = float(problem.host[0, 0]), float(problem.host[-1, 0])
    else:
        t0, t1 = times[..., 0], times[..., -1]
    return UniformGrid(t0, t1, settings.num_steps)


def _steps_of_samples(problem: Problem, settings: Settings) -> int | Tensor:
    """How many fixed steps there are, `[*batch]` where samples differ in it."""
    assert settings.num_steps is not None
    if settings.own_steps is None:
        return settings.num_steps
    layout = problem.layout
    return torch.from_numpy(settings.own_steps).to(layout.device).reshape(layout.batch_shape)


def integrate(
    problem: Problem,
    settings: Settings,
    f: Evaluation,
    *,
    events: tuple[Event, ...] = (),
    recorder: Recorder | None = None,
    only_final: bool = False,
    attempts: int | None = None,
) -> Result:
    """Solve `problem` from its start to its last time; `attempts` as for `AdaptiveSolve`."""
    y0 = problem.y0.to(problem.layout.working_dtype)
    outputs = None
    if not only_final:
        outputs = Outputs(problem.times, problem.host, y0, problem.layout.batch_shape)
    if settings.num_steps is not None and not events:
        result = _fixed(problem, settings, f, y0, outputs, recorder)
    else:
        result = _adaptive(problem, settings, f, y0, outputs, events, recorder, attempts)
    result.final = result.final.to(problem.layout.dtype)
    if result.states is not None:
        result.states = result.states.to(problem.layout.dtype)
    return result


def _fixed(
    problem: Problem,
    settings: Settings,
    f: Evaluation,
    y0: Tensor,
    outputs: Outputs | None,
    recorder: Recorder | None,
) -> Result:
    grid = fixed_grid(problem, problem.times, settings)
    steps: list[Step] | None = [] if settings.keep_steps else None
    calls: list[int] | None = None if settings.own_steps is None else []
    y, _, failed = march(
        settings.method, f, y0, grid, outputs=outputs, recorder=recorder, kept=steps, calls=calls
    )
    moves = problem.per_sample(0) != problem.per_sample(-1)
    if (problem.host[0] == problem.host[-1]).any():
        # A step of size 0 leaves a sample where it is, unless the field is infinite there.
        y = torch.where(problem.layout.spread(moves), y, y0)
    status = finite_status(problem.layout, y)
    if failed:
        status = torch.where(torch.stack(failed).any(0), int(Status.NOT_CONVERGED), status)
    if settings.raise_on_failure and bool((status != 0).any()):
        raise SolveError(_first_failure(problem, settings, f, y0, grid))
    first, last = problem.host[0], problem.host[-1]
    kept = [
        KeptStep(step, grid.host_end(index, first, last), np.ones_like(first, dtype=bool))
        for index, step in enumerate(steps or ())
    ]
    moving = moves.long()
    counts = _steps_of_samples(problem, settings)
    evaluations: int | Tensor = f.calls
    if calls is not None:
        evaluations = torch.tensor(calls, device=moving.device)[counts - 1]
    states = outputs.finish(f, y) if outputs is not None else None
    stats = Stats(
        evaluations=moving * evaluations,
        accepted=moving * counts,
        rejected=torch.zeros_like(moving),
        field_calls=f.calls,
        status=status,
    )
    return Result(states, y, stats, status, problem.per_sample(-1), (), kept)


def finite_status(layout: Layout, y: Tensor) -> Tensor:
    """SUCCESS or NON_FINITE per sample, without asking the host."""
    finite = layout.is_finite(y.detach().to(layout.dtype))  # as the caller gets it
    return torch.where(finite, int(Status.SUCCESS), int(Status.NON_FINITE))


@torch.no_grad()
def _first_failure(
    problem: Problem, settings: Settings, f: Evaluation, y: Tensor, grid: Grid
) -> str:
    """Take the steps again to say where the first one failed."""
    carry = None
    for index in range(len(grid)):
        before = y
        y, carry, failed = march(
            settings.method, f, y, grid, carry=carry, span=range(index, index + 1)
        )
        status = finite_status(problem.layout, y)
        if failed:
            status = torch.where(failed[0], int(Status.NOT_CONVERGED), status)
        if bool((status != 0).any()):
            dy = f(grid[index][0], before)
            t, dt = (torch.as_tensor(x).expand(status.shape) for x in grid[index])
            return describe_failure(status, t, dt, before, dy, problem.layout)
    return "The solve failed once and succeeded when taken again: the field is not a function."


def _adaptive(
    problem: Problem,
    settings: Settings,
    f: Evaluation,
    y0: Tensor,
    outputs: Outputs | None,
    events: tuple[Event, ...],
    recorder: Recorder | None,
    attempts: int | None,
) -> Result:
    only_end = outputs is recorder is attempts is None and not (events or settings.keep_steps)
    differentiates_times = problem.times.requires_grad and torch.is_grad_enabled()
    on_cpu = problem.layout.device.type == "cpu"
    if problem.is_lone and on_cpu and only_end and not differentiates_times:
        return _lone(problem, settings, f, y0)
    method = settings.method
    t0, t1 = problem.per_sample(0), problem.per_sample(-1)
    f.noise.begin_step(-1, -1)
    carry = method.start(f, t0, y0)
    span = (t1 - t0).detach()
    if settings.num_steps is not None:
        dt = span / _steps_of_samples(problem, settings)
    else:
        assert isinstance(method, RungeKutta)
        with torch.no_grad():
            dt = first_step(
                f,
                t0.detach(),
                y0,
                carry[0],
                span,
                error_order=method.tableau.error_order,
                rtol=settings.rtol,
                atol=settings.atol,
                error_constant=method.tableau.error_constant,
            )
    kept: list[KeptStep] | None = [] if settings.keep_steps else None
    loop = AdaptiveSolve(
        method,
        f,
        t0,
        t1,
        dt,
        settings.tolerances,
        outputs=outputs,
        events=EventTracker(events, f, t0, y0) if events else None,
        recorder=recorder,
        kept=kept,
        attempts=attempts,
    )
    loop.evaluations = (loop.t != loop.t1).long() * f.calls
    y = loop.run(y0, carry)
    # What a step tolerates grows with the state, so that one of infinite size passes for accurate.
    lost = (loop.status <= Status.EVENT) & (finite_status(problem.layout, y) != Status.SUCCESS)
    loop.status = torch.where(lost, int(Status.NON_FINITE), loop.status)
    may_raise = settings.raise_on_failure and attempts is None
    if may_raise and bool((loop.status > Status.EVENT).any()):
        dy = _field_at_failure(problem, settings, f, loop.status, loop.t, loop.dt, y)
        raise SolveError(describe_failure(loop.status, loop.t, loop.dt, y, dy, problem.layout))
    states = outputs.finish(f, y) if outputs is not None else None
    stats = Stats(
        evaluations=loop.evaluations,
        accepted=loop.accepted,
        rejected=loop.rejected,
        field_calls=f.calls,
        status=loop.status,
    )
    records = loop.events.records() if loop.events is not None else ()
    return Result(states, y, stats, loop.status, loop.t, records, kept or [])


def _lone(problem: Problem, settings: Settings, f: Evaluation, y0: Tensor) -> Result:
    """An adaptive solve of one sample on a CPU, of which nobody wants more than its end."""
    method, tolerances = settings.method, settings.tolerances
    assert isinstance(method, RungeKutta)
    assert tolerances is not None
    t0, t1 = float(problem.host[0, 0]), float(problem.host[-1, 0])
    f.noise.begin_step(-1, -1)
    carry = method.start(f, t0, y0)
    with torch.no_grad():
        dt = lone_first_step(
            f,
            t0,
            y0,
            carry[0],
            t1 - t0,
            error_order=method.tableau.error_order,
            rtol=settings.rtol,
            atol=settings.atol,
            error_constant=method.tableau.error_constant,
        )
    loop = LoneSolve(method, f, t0, t1, dt, tolerances)
    y = loop.run(y0, carry)
    if loop.status == Status.SUCCESS and not bool(finite_status(problem.layout, y) == 0):
        loop.status = Status.NON_FINITE

    def filled(value: float) -> Tensor:
        dtype = torch.int64 if isinstance(value, int) else problem.layout.time_dtype
        layout = problem.layout
        return torch.full(layout.batch_shape, value, dtype=dtype, device=layout.device)

    status, end = filled(int(loop.status)), filled(loop.t)
    if settings.raise_on_failure and loop.status != Status.SUCCESS:
        last = filled(loop.dt)
        dy = _field_at_failure(problem, settings, f, status, end, last, y)
        raise SolveError(describe_failure(status, end, last, y, dy, problem.layout))
    stats = Stats(
        evaluations=filled(f.calls if t0 != t1 else 0),
        accepted=filled(loop.accepted),
        rejected=filled(loop.rejected),
        field_calls=f.calls,
        status=status,
    )
    return Result(None, y, stats, status, end, (), [])


@torch.no_grad()
def _field_at_failure(
    problem: Problem,
    settings: Settings,
    f: Evaluation,
    status: Tensor,
    t: Tensor,
    dt: Tensor,
    y: Tensor,
) -> Tensor:
    """The field where a solve has stopped; if it is finite there, where its last step was refused.

    Of a step that underflows even to 0, all sizes were refused.
    """
    layout = problem.layout
    here = f(t, y)
    remaining = problem.per_sample(-1).detach() - t
    size = torch.where(dt == 0, 1e-12 * remaining, dt / settings.control.min_factor)
    size = torch.where(size.abs() < remaining.abs(), size, remaining)
    size = torch.where(status == Status.STEP_UNDERFLOW, size, 0.0)
    beyond = f(t + size, y + layout.scale(size) * here)
    return torch.where(layout.spread(layout.is_finite(here)), beyond, here)


def steps_for(step_size: float, host: np.ndarray) -> tuple[int, np.ndarray | None]:
    """Equal steps over each sample's span, none longer than `step_size`.

    Returns:
        The most a sample takes, and those of each `[samples]` if they differ. A sample of zero
        span rests in any number of steps.
    """
    spans = np.abs(host[-1] - host[0])
    return steps_of(np.ceil(spans / step_size * (1 - 1e-12)), host)


def steps_of(counts: np.ndarray, host: np.ndarray) -> tuple[int, np.ndarray | None]:
    """The most steps of a sample, at least one, and those of each `[samples]` if they differ."""
    counts = counts.astype(np.int64).clip(min=1)
    most = int(counts.max())
    counts[host[-1] == host[0]] = most
    return most, None if (counts == most).all() else counts
