"""`solve`: any f(t, y), any solver, any gradient."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphode.flows.adjoint import solve_with_adjoint
from graphode.flows.checkpoint import solve_with_checkpoints
from graphode.flows.control import StepControl
from graphode.flows.counting import report
from graphode.flows.dense import KeptSteps, SolveAgain
from graphode.flows.dependencies import argument_tensors, detached_arguments, field_tensors
from graphode.flows.evaluation import Evaluation
from graphode.flows.event_gradients import solve_with_events
from graphode.flows.events import Event, EventFunction, read_events
from graphode.flows.gradients import Adjoint, Backprop, Gradient, find_gradient
from graphode.flows.host import on_host, refuse_transforms
from graphode.flows.integrate import Result, Settings, integrate, steps_for, steps_of
from graphode.flows.layout import Layout
from graphode.flows.leapfrog import Leapfrog
from graphode.flows.masks import is_recorded, is_traced
from graphode.flows.method import Method
from graphode.flows.methods import find_method, has_error_estimate
from graphode.flows.problem import (
    Problem,
    Times,
    check_finite,
    check_positive,
    check_state,
    check_times,
    read_args,
    read_times,
)
from graphode.flows.recorded import check_recordable, recorded_times, solve_recorded
from graphode.flows.redraw import check_redraw, need_of
from graphode.flows.solution import Solution
from graphode.flows.stochastic import SolveNoise, noise_of

OnFailure = Literal["raise", "status"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What `solve` and `Flow` let their users choose; the arguments are explained at `solve`."""

    solver: str | Method = "tsit5"
    rtol: float = 1e-5
    atol: float = 1e-7
    num_steps: int | None = None
    step_size: float | None = None
    gradient: str | Gradient = "backprop"
    max_steps: int = 10_000
    min_step: float = 0.0
    control: StepControl = dataclasses.field(default_factory=StepControl)
    on_failure: OnFailure = "raise"

    def __post_init__(self) -> None:
        check_positive("rtol", self.rtol, "Use for example 1e-3 to 1e-8.")
        check_positive("atol", self.atol, "Use for example 1e-4 to 1e-9.")
        check_positive("max_steps", self.max_steps, "It bounds the attempts of one solve.")
        if not 0 <= self.min_step < math.inf:
            raise ValueError(
                f"`min_step` must not be negative and must be finite, but is {self.min_step}. Use "
                f"0 for no bound."
            )
        if self.num_steps is not None and (
            isinstance(self.num_steps, bool)
            or not isinstance(self.num_steps, Integral)
            or self.num_steps <= 0
        ):
            raise ValueError(
                f"`num_steps` must be a positive whole number, but is {self.num_steps!r}. It "
                f"counts the steps over the whole span."
            )
        if self.step_size is not None:
            check_positive("step_size", self.step_size, "Steps run in the direction of `times`.")
            if self.num_steps is not None:
                raise ValueError(
                    "Give `num_steps` or `step_size`, not both: each determines the other."
                )
        if self.on_failure not in ("raise", "status"):
            raise ValueError(
                f"`on_failure` must be 'raise' or 'status', but is {self.on_failure!r}. With "
                f"'status', `solution.status` says what happened."
            )
        find_gradient(self.gradient)
        fixed = self.num_steps is not None or self.step_size is not None
        if not fixed and not has_error_estimate(self.method):
            raise ValueError(
                f"Solver {self.solver!r} takes steps of fixed size: say how many with "
                f"`num_steps=` (over the whole span), or how long with `step_size=`. Solvers that "
                f"choose their own steps: bosh3, dopri5, tsit5, dopri8."
            )

    @property
    def method(self) -> Method:
        """The solver itself."""
        return find_method(self.solver, self.rtol, self.atol)

    def settings(
        self, host: np.ndarray, keep_steps: bool, part: np.ndarray | None = None
    ) -> Settings:
        """How to solve over the times `host`, which may be a `part` of each sample's span."""
        num_steps, own_steps = self.num_steps, None
        if self.step_size is not None:
            num_steps, own_steps = steps_for(self.step_size, host)
        elif num_steps is not None and part is not None:
            num_steps, own_steps = steps_of(np.ceil(num_steps * part * (1 - 1e-12)), host)
        return Settings(
            method=self.method,
            rtol=self.rtol,
            atol=self.atol,
            num_steps=num_steps,
            own_steps=own_steps,
            max_steps=self.max_steps,
            min_step=self.min_step,
            control=self.control,
            raise_on_failure=self.on_failure == "raise",
            keep_steps=keep_steps,
        )


def solve(
    f: Callable[..., Tensor],
    y0: Tensor,
    times: Times,
    args: tuple[Any, ...] = (),
    *,
    solver: str | Method = "tsit5",
    rtol: float = 1e-5,
    atol: float = 1e-7,
    num_steps: int | None = None,
    step_size: float | None = None,
    gradient: str | Gradient = "backprop",
    batch_dims: int = 0,
    events: Event | EventFunction | Sequence[Event | EventFunction] = (),
    max_steps: int = 10_000,
    min_step: float = 0.0,
    control: StepControl | None = None,
    dense: bool = True,
    on_failure: OnFailure = "raise",
) -> Solution:
    """Solve dy/dt = f(t, y, *args) with y(times[0]) = y0.

    Args:
        f: The field; returns a tensor like `y`. It receives `t` in the state's dtype, 0-d, or one
            value per sample shaped to broadcast against `y`.
        y0: The state at the first time.
        times: Output times, strictly increasing or decreasing; `[time]`, or `[*batch, time]` to
            give each sample its own, also in opposite directions, or of the batch the first
            dimensions alone. Tensors receive gradients, also those in a list.
        args: Further arguments of the field; tensors in them receive gradients.
        solver: Adaptive: bosh3, dopri5, tsit5, dopri8. Fixed step: euler, midpoint, heun, rk4,
            rk4_38, adams, leapfrog, implicit_euler, trapezoid, collocation. Or a `Method`.
        rtol: Relative tolerance of each step's error (of the iteration, for collocation).
        atol: Absolute tolerance.
        num_steps: Equal steps over the whole span, whatever the output times; required by
            fixed-step solvers (or `step_size`), switches error control off for adaptive ones.
        step_size: Longest step, as another way to say `num_steps`, to each sample its own.
        gradient: backprop, checkpoint, adjoint, checkpoint_adjoint; or an instance with options.
        batch_dims: Leading dimensions of `y0` that are separate samples. Each has its own steps,
            error norm and end; by default the whole of `y0` is one system.
        events: Functions `g(t, y)` whose zeros are wanted, one or several; as an `Event` where a
            sample shall stop there, or only one direction counts.
        max_steps: Most attempts of an adaptive solve, per sample.
        min_step: Smallest step size before an adaptive solve gives up.
        control: How step sizes follow the error.
        dense: Keep every step so that `solution.at(t)` interpolates; costs memory for each
            stage of each step. Otherwise, and always with gradient methods that save memory,
            `at` solves again from the nearest output time.
        on_failure: "raise" an exception, or report in `solution.status`.

    Returns:
        States at all `times` (the first is `y0`), cost, status, events and dense output.
    """
    options = Options(
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
    check_state(y0, batch_dims)
    layout = Layout.of(y0, batch_dims)
    if is_traced() or is_recorded(y0.device):
        return record_problem(f, read_args(args), y0, times, layout, options, events)
    moments = read_times(times, layout)
    host = check_times(moments, layout)
    if on_failure == "raise":
        check_finite(y0)
    problem = Problem(f, read_args(args), y0, moments, host, layout)
    return solve_problem(problem, options, read_events(events), dense)


def solve_problem(
    problem: Problem, options: Options, events: tuple[Event, ...] = (), dense: bool = False
) -> Solution:
    """Solve a checked problem by the gradient method of `options`."""
    settings = options.settings(problem.host, keep_steps=dense)
    evaluation = Evaluation(problem.f, problem.args, problem.layout)
    result = _by_gradient(problem, options, settings, evaluation, events)
    report(result.stats)
    assert result.states is not None
    solution = Solution(
        times=problem.times,
        states=result.states,
        stats=result.stats,
        status=result.status,
        end_times=result.end_times,
        events=result.events,
    )
    if result.kept:
        final = result.final.to(problem.layout.working_dtype)
        solution.dense = KeptSteps(problem, settings.method, evaluation, result.kept, final)
    else:
        again = _again(problem, options, evaluation.noise)
        solution.dense = SolveAgain(problem, result.states, result.end_times, again)
    return solution


def record_problem(
    f: Callable[..., Tensor],
    args: tuple[Any, ...],
    y0: Tensor,
    times: Times,
    layout: Layout,
    options: Options,
    events: object,
) -> Solution:
    """Solve a problem of which no value is known: in compiled code, or in a CUDA graph."""
    if events not in ((), []):
        raise ValueError(
            "Events are located by looking at values, which a compiled or captured solve cannot. "
            "Solve in eager mode, or leave them out."
        )
    check_recordable(options)
    evaluation, moments = Evaluation(f, args, layout), recorded_times(times, layout)
    return solve_recorded(options.method, evaluation, y0, moments, options.num_steps)


def final_state(
    problem: Problem,
    options: Options,
    noise: SolveNoise | None = None,
    part: np.ndarray | None = None,
) -> Tensor:
    """The state at the last time alone.

    Args:
        noise: The masks of a solve this one belongs to.
        part: How much of that solve's span each sample has to go.
    """
    # The gradient of the end time comes from the interpolation of the last step.
    only_final = not problem.times.requires_grad
    settings = options.settings(problem.host, keep_steps=False, part=part)
    evaluation = Evaluation(problem.f, problem.args, problem.layout, noise)
    result = _by_gradient(problem, options, settings, evaluation, (), only_final)
    report(result.stats)
    return result.final if result.states is None else result.states[-1]


def _by_gradient(
    problem: Problem,
    options: Options,
    settings: Settings,
    evaluation: Evaluation,
    events: tuple[Event, ...],
    only_final: bool = False,
) -> Result:
    gradient = find_gradient(options.gradient)
    recomputed = torch.is_grad_enabled() and not isinstance(gradient, Backprop)
    need = need_of(
        adaptive=settings.num_steps is None,
        adjoint=recomputed and isinstance(gradient, Adjoint),
        recomputed=recomputed,
    )
    if need is not None:
        check_redraw(problem.f, need)
        evaluation.must_be_function(need)
    if recomputed:
        refuse_transforms(f"A solve with gradient={options.gradient!r}")
    else:
        return integrate(problem, settings, evaluation, events=events, only_final=only_final)
    if events:
        return solve_with_events(
            problem,
            settings,
            events,
            lambda merged: _with_gradient(merged, settings, gradient, evaluation),
            evaluation.noise,
        )
    return _with_gradient(problem, settings, gradient, evaluation)


def _with_gradient(
    problem: Problem, settings: Settings, gradient: Gradient, f: Evaluation
) -> Result:
    """Solve with checkpoints or an adjoint; every tensor that wants a gradient is named."""
    t0 = problem.layout.field_time(problem.times.detach()[..., 0])
    # Cut off before the search: a field may close over what its arguments were computed from, or
    # over something computed from them.
    args = detached_arguments(problem.args)
    with noise_of(f.noise):
        own, modules = field_tensors(problem.f, t0, problem.y0, args)
    given = argument_tensors(problem.args)
    if not any(tensor.requires_grad for tensor in (problem.y0, problem.times, *own, *given)):
        # There is nothing to save memory for, such as a frozen field before a head that learns.
        return integrate(problem, dataclasses.replace(settings, keep_steps=False), f)
    f.args = args
    f.remember(modules)
    inputs = [*given, *own]
    tensors = [*argument_tensors(args), *own]
    if not isinstance(gradient, Adjoint):
        return solve_with_checkpoints(problem, settings, f, inputs, tensors)
    if isinstance(settings.method, Leapfrog):
        raise ValueError(
            "Solver 'leapfrog' cannot solve the adjoint equation, whose state is not (position, "
            "velocity). Use gradient='checkpoint', which is exact and needs little memory."
        )
    return solve_with_adjoint(problem, settings, f, gradient, inputs, tensors)


def _again(
    problem: Problem, options: Options, noise: SolveNoise
) -> Callable[[Tensor, Tensor, Tensor, np.ndarray], Tensor]:
    def flow(y: Tensor, t0: Tensor, t1: Tensor, part: np.ndarray) -> Tensor:
        times = torch.stack([t0, t1], -1)
        host = on_host(times.reshape(-1, 2)).T
        shorter = dataclasses.replace(problem, y0=y, times=times, host=host)
        return final_state(shorter, options, noise, part)

    return flow
