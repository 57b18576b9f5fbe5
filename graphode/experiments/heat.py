"""Heat on the karate-club graph: every solver against the exact answer.

    dh/dt = − L h,    h(t) = exp(− t L) h(0),    L = D − A

One member of the club is hot at the start, and friendships conduct. The equation is linear, so the
matrix exponential is exact and every solver's error can be measured.

    graphode run heat
"""

import dataclasses
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor

from graphode.data.karate import karate_club
from graphode.experiments.heat_figure import draw
from graphode.experiments.provenance import provenance
from graphode.flows import SOLVERS, Flow, SolveError
from graphode.flows.methods import find_method, has_error_estimate
from graphode.graphs import Graph


@dataclasses.dataclass(frozen=True, kw_only=True)
class Heat:
    """Let heat spread on the karate club: every solver against the exact answer.

    Args:
        out: Folder for the result, the table and the figure.
        end: Integrate from 0 to here; most of the heat has spread by 1.
        hot: The member who is hot at the start; 0 is the instructor.
        num_steps: Steps of the fixed-step solvers; collocation takes a twentieth as elements.
        rtol: Relative tolerance of the adaptive solvers.
        atol: Absolute tolerance of the adaptive solvers.
        repeats: Timed solves per solver; the median counts.
    """

    out: Path = Path("runs/heat")
    end: float = 2.0
    hot: int = 0
    num_steps: int = 100
    rtol: float = 1e-6
    atol: float = 1e-8
    repeats: int = 5

    def __post_init__(self) -> None:
        if self.end <= 0:
            raise ValueError(f"`end` must be positive, but is {self.end}. Time runs from 0.")
        if not 0 <= self.hot < 34:
            raise ValueError(
                f"`hot` must be a member of the club, 0 to 33, but is {self.hot}. 0 is the "
                f"instructor, 33 the president."
            )
        if self.repeats < 1:
            raise ValueError(f"`repeats` must be at least 1, but is {self.repeats}.")


def diffusion(t: Tensor, h: Tensor, laplacian: Graph) -> Tensor:
    """The field − L h."""
    del t  # autonomous
    return -laplacian.propagate(h)


def wave(t: Tensor, state: Tensor, laplacian: Graph) -> Tensor:
    """x″ = − L x on the same graph, for the solver that needs positions and velocities."""
    del t
    position, velocity = state.chunk(2, -1)
    return torch.cat([velocity, -laplacian.propagate(position)], -1)


def run(config: Heat) -> Path:
    """Solve with every solver, print the table, write the result; returns its folder."""
    console = Console()
    # A folder that cannot be written should fail now, not after the work.
    config.out.mkdir(parents=True, exist_ok=True)
    laplacian = karate_club().normalize("laplacian").to(dtype=torch.float64)
    h0 = torch.zeros(laplacian.num_nodes, 1, dtype=torch.float64)
    h0[config.hot] = 1.0
    rows = []
    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task("solving", total=len(SOLVERS))
        for solver in SOLVERS:
            progress.update(task, description=f"solving with {solver}")
            rows.append(_measure(solver, laplacian, h0, config))
            progress.advance(task)
    result = {
        "experiment": "heat",
        "config": {**dataclasses.asdict(config), "out": str(config.out)},
        **provenance(torch.device("cpu")),
        "rows": rows,
    }
    (config.out / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    console.print(_table(rows, config))
    draw(result, laplacian, h0, config.out / "heat.png")
    console.print(
        f"Heat from member {config.hot} over {laplacian.num_nodes} members; exact answer by "
        f"matrix exponential.\nResult: {config.out / 'result.json'}\n"
        f"Figure: {config.out / 'heat.png'}"
    )
    return config.out


def exact(laplacian: Graph, h0: Tensor, t: float) -> Tensor:
    """exp(− t L) h0."""
    return torch.linalg.matrix_exp(-t * laplacian.to_dense()) @ h0


def _exact_wave(laplacian: Graph, state: Tensor, t: float) -> Tensor:
    dense = laplacian.to_dense()
    zero, one = torch.zeros_like(dense), torch.eye(len(dense), dtype=dense.dtype)
    system = torch.cat([torch.cat([zero, one], 1), torch.cat([-dense, zero], 1)])
    flat = torch.cat([state[:, :1], state[:, 1:]])
    return torch.cat((torch.linalg.matrix_exp(t * system) @ flat).chunk(2), -1)


def _measure(solver: str, laplacian: Graph, h0: Tensor, config: Heat) -> dict[str, Any]:
    """Error, evaluations and time of one solver."""
    field: Callable[..., Tensor] = diffusion
    start, answer = h0, exact(laplacian, h0, config.end)
    if solver == "leapfrog":
        field, start = wave, torch.cat([h0, torch.zeros_like(h0)], -1)
        answer = _exact_wave(laplacian, start, config.end)
    adaptive = has_error_estimate(find_method(solver, config.rtol, config.atol))
    steps = config.num_steps // 20 + 1 if solver == "collocation" else config.num_steps
    flow = Flow(
        field,
        solver=solver,
        rtol=config.rtol,
        atol=config.atol,
        num_steps=None if adaptive else steps,
    )
    row: dict[str, Any] = {
        "solver": solver,
        "adaptive": adaptive,
        "equation": "wave" if solver == "leapfrog" else "heat",
    }
    solutions, seconds = [], []
    with torch.no_grad():
        try:
            for _ in range(config.repeats):
                began = time.perf_counter()
                solutions.append(flow.solve(start, laplacian, [0.0, config.end], dense=False))
                seconds.append(time.perf_counter() - began)
        except SolveError as failure:
            return {**row, "failure": str(failure)}
    solution = solutions[-1]
    return {
        **row,
        "error": (solution.states[-1] - answer).abs().max().item(),
        "evaluations": int(solution.stats.evaluations),
        "accepted": int(solution.stats.accepted),
        "rejected": int(solution.stats.rejected),
        "milliseconds": 1e3 * statistics.median(seconds),
    }


def _table(rows: list[dict[str, Any]], config: Heat) -> Table:
    table = Table(title=f"Heat on the karate club, t = 0 to {config.end:g}")
    table.add_column("solver")
    table.add_column("steps")
    for name in ("largest error", "evaluations", "ms"):
        table.add_column(name, justify="right")
    for row in rows:
        if "failure" in row:
            table.add_row(row["solver"], "[red]failed[/red]", row["failure"].split(":")[0], "", "")
            continue
        steps = f"{row['accepted']}" + (f" + {row['rejected']} rejected" if row["rejected"] else "")
        kind = "adaptive" if row["adaptive"] else "fixed"
        table.add_row(
            row["solver"] + (" (wave equation)" if row["equation"] == "wave" else ""),
            f"{kind}, {steps}",
            f"{row['error']:.1e}",
            str(row["evaluations"]),
            f"{row['milliseconds']:.1f}",
        )
    return table
