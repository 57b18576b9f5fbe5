"""Simulate the particles of the paper's multi-agent experiment, until converged.

    trajectories = simulate(Particles(), seeds=range(10))

The force jumps where two particles come within r/2, hundreds of times in a run, and a method that
does not see the jumps is off by 0.02 with steps of 1e-4. Up to `LOCATED` particles every jump is
located and ends a step (`crossings.py`): halving the tolerance then changes no state by more than
1e-6. With thousands of particles there is always a pair about to cross somewhere; steps are then of
one size and run over the jumps, each of which costs up to h α r/2 in velocity, and near pairs are
found by a k-d tree, at a cost per step nearly linear in their number.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor

from graphode.data.crossings import SwitchedSolve
from graphode.data.particle_forces import AllPairs, CoincidentParticlesError, NearPairs
from graphode.data.particle_system import Particles
from graphode.data.trajectories import Trajectories
from graphode.flows import solve
from graphode.flows.methods import find_method, has_error_estimate
from graphode.flows.problem import check_positive
from graphode.flows.runge_kutta import RungeKutta

LOCATED = 64
# Parts of a long run after which progress is shown.
_PARTS = 100


def simulate(
    system: Particles | None = None,
    seeds: int | Sequence[int] = 0,
    *,
    initial: Float[Tensor, "systems n 4"] | None = None,
    solver: str | None = None,
    tolerance: float = 1e-12,
    step_size: float | None = None,
    progress: bool = False,
) -> Trajectories:
    """Trajectories of one system per seed; a system does not depend on those beside it.

    Args:
        system: The law; the paper's by default.
        seeds: Of the initial conditions, one per system.
        initial: Initial states [x, x′] instead of seeds.
        solver: An adaptive Runge–Kutta solver where jumps are located, else one of fixed step.
        tolerance: Relative and absolute, of each step between jumps.
        step_size: Do not locate the jumps, but take steps of this size. By default jumps are
            located up to 64 particles; beyond, the step is an eighth of `dt`.
        progress: Show a bar with the time left.
    """
    system = system or Particles()
    check_positive("tolerance", tolerance, "Use for example 1e-12.")
    if initial is None:
        seeds = [seeds] if isinstance(seeds, int) else list(seeds)
        if not seeds:
            raise ValueError("`seeds` must name one system or more, but is empty. Use `seeds=0`.")
        initial = system.initial_states(seeds)
    states = _checked(initial, system)
    if step_size is None and system.n <= LOCATED:
        return _with_jumps_located(system, states, solver or "dopri8", tolerance, progress)
    step_size = system.dt / 8 if step_size is None else step_size
    return _with_fixed_steps(system, states, solver or "rk4", step_size, progress)


def _with_jumps_located(
    system: Particles, states: Tensor, solver: str, tolerance: float, progress: bool
) -> Trajectories:
    method = find_method(solver, tolerance, tolerance)
    if not isinstance(method, RungeKutta) or not has_error_estimate(method):
        raise ValueError(
            f"Jumps are located by solvers that choose their own steps, but {solver!r} does not. "
            f"Use bosh3, dopri5, tsit5 or dopri8, or give `step_size` for steps of one size."
        )
    times = system.times
    with _shown(progress, float(times[-1])) as follow:
        field = AllPairs(system)
        found = SwitchedSolve(field, states, times, method, tolerance, tolerance, follow).run()
    positions, velocities = found.states.split(2, -1)
    return Trajectories(system, times, positions, velocities, found.crossings, found.evaluations)


def _with_fixed_steps(
    system: Particles, states: Tensor, solver: str, step_size: float, progress: bool
) -> Trajectories:
    times, field = system.times, NearPairs(system)
    found, evaluations = [], 0
    per_part = -(-system.num_steps // _PARTS)
    with _shown(progress, float(times[-1]) * len(states)) as follow:
        for index, state in enumerate(states):
            parts = [state[None]]
            for start in range(0, system.num_steps, per_part):
                span = times[start : start + per_part + 1]
                solution = solve(
                    field, parts[-1][-1], span, solver=solver, step_size=step_size, dense=False
                )
                parts.append(solution.states[1:])
                evaluations += solution.stats.field_calls
                if follow is not None:
                    follow(index * float(times[-1]) + float(span[-1]))
            found.append(torch.cat(parts))
    positions, velocities = torch.stack(found).split(2, -1)
    uncounted = torch.full((len(states),), -1)
    return Trajectories(system, times, positions, velocities, uncounted, evaluations)


def _checked(initial: Tensor, system: Particles) -> Tensor:
    """Finite states of the right shape, in float64, nobody in another's place."""
    if initial.ndim != 3 or tuple(initial.shape[1:]) != (system.n, 4) or not len(initial):
        raise ValueError(
            f"Initial states must have shape [systems, {system.n}, 4], positions and velocities of "
            f"{system.n} particles, but have shape {list(initial.shape)}. Give `seeds`, or set "
            f"`Particles(n=…)` to the number of particles."
        )
    if not bool(initial.isfinite().all()):
        raise ValueError(
            "Initial states must be finite, but some are not. Drop particles without a position."
        )
    initial = initial.double()
    for index, positions in enumerate(initial[..., :2]):
        _, place, counts = positions.unique(dim=0, return_inverse=True, return_counts=True)
        if int(counts.max()) > 1:
            i, j = (place == counts.argmax()).nonzero()[:2, 0].tolist()
            raise CoincidentParticlesError(index, i, j, "at the start")
    return initial


@contextmanager
def _shown(progress: bool, total: float) -> Iterator[Callable[[float], None] | None]:
    """A bar that follows the simulated time, if there is to be one."""
    if not progress:
        yield None
        return
    columns = (
        TextColumn("simulating"),
        BarColumn(),
        TextColumn("{task.completed:.2f} of {task.total:.2f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)
        yield lambda reached: bar.update(task, completed=reached)
