"""The flow engine against torchdiffeq: evaluations, time and memory.

    python benchmarks/flows.py --device cpu            all of it
    python benchmarks/flows.py --only time --device cuda

Both sides run in one process on the same field, weights and tolerances, and take turns; times are
medians after warm-up. The last line is one JSON object.
"""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Part, in_fresh_process, peak_memory_mib, script, side_by_side
from torch import Tensor

import graphode as gd


def citation_graph(num_nodes: int = 2708, num_links: int = 5278, seed: int = 0) -> gd.Graph:
    """A random graph of Cora's size, both directions of every link, normalised as in a GCN."""
    generator = torch.Generator().manual_seed(seed)
    # A power law of popularity, as citations have.
    popularity = torch.arange(1, num_nodes + 1, dtype=torch.float64) ** -0.5
    target = torch.multinomial(popularity, num_links, replacement=True, generator=generator)
    source = torch.randint(num_nodes, (num_links,), generator=generator)
    links = torch.stack([source, target])[:, source != target]
    edges = torch.unique(torch.cat([links, links.flip(0)], 1), dim=1)
    return gd.Graph(edges, num_nodes).normalize("sym")


def our_cost(problem: Any, tolerance: float) -> tuple[float, int]:
    """Error and evaluations of our dopri5."""
    solution = gd.solve(
        problem.f,
        problem.y0,
        [problem.t0, problem.t1],
        solver="dopri5",
        rtol=tolerance,
        atol=tolerance,
        max_steps=10**6,
        dense=False,
    )
    return problem.error(solution.states[-1]), int(solution.stats.evaluations)


def rival_cost(problem: Any, tolerance: float) -> tuple[float, int]:
    """Error and evaluations of torchdiffeq's dopri5."""
    import torchdiffeq

    calls = 0

    def counted(t: Tensor, y: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return problem.f(t, y)

    times = torch.tensor([problem.t0, problem.t1], dtype=torch.float64)
    states = torchdiffeq.odeint(
        counted, problem.y0, times, method="dopri5", rtol=tolerance, atol=tolerance
    )
    return problem.error(states[-1]), calls


@torch.no_grad()
def evaluations() -> dict[str, Any]:
    """dopri5's evaluations over torchdiffeq's at the error torchdiffeq achieves.

    Our evaluations are read off our own curve of error against evaluations (tolerances from 1e-2
    to 1e-12), at the very error the rival has made at its tolerance.
    """
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests import problems

    chosen = [
        problems.heat(),
        problems.modulated(),
        problems.lotka_volterra(),
        problems.van_der_pol(),
        problems.kepler(),
        problems.random_convolution(),
    ]
    rows = []
    for problem in chosen:
        curve = sorted(our_cost(problem, 10**exponent) for exponent in np.arange(-12, -1.9, 0.25))
        errors = np.log([max(error, 1e-16) for error, _ in curve])
        # Smaller errors never cost less: the noise of single solves is taken out.
        counts = np.minimum.accumulate(np.log([count for _, count in curve]))
        for tolerance in (1e-3, 1e-6, 1e-9):
            rival_error, rival_count = rival_cost(problem, tolerance)
            our_error, our_count = our_cost(problem, tolerance)
            at_equal = math.exp(np.interp(math.log(rival_error), errors, counts))
            rows.append(
                {
                    "problem": problem.name,
                    "tolerance": tolerance,
                    "rival_evaluations": rival_count,
                    "rival_error": rival_error,
                    "evaluations": our_count,
                    "error": our_error,
                    "evaluations_at_rival_error": at_equal,
                    "ratio": at_equal / rival_count,
                }
            )
    ratios = [row["ratio"] for row in rows]
    return {
        "geometric_mean_ratio": math.exp(sum(map(math.log, ratios)) / len(ratios)),
        "largest_ratio": max(ratios),
        "rows": rows,
    }


def time(device: str) -> dict[str, Any]:
    """Forward and backward of a two-layer GCN field, 2708 nodes × 64 channels, float32."""
    import torchdiffeq

    torch.manual_seed(0)
    graph = citation_graph().to(device)
    field = gd.GraphConvField([64, 64, 64]).to(device)
    h = torch.randn(graph.num_nodes, 64, device=device)
    interval = torch.tensor([0.0, 1.0], device=device)

    def train(solve: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        def run() -> None:
            start = h.clone().requires_grad_()
            solve(start).sum().backward()
            field.zero_grad()

        return run

    def rival(method: str, **options: Any) -> Callable[[Tensor], Tensor]:
        def field_of_two(t: Tensor, y: Tensor) -> Tensor:
            return field(t, y, graph)

        return lambda y: torchdiffeq.odeint(field_of_two, y, interval, method=method, **options)[-1]

    def flow(solver: str, **options: Any) -> Callable[[Tensor], Tensor]:
        module = gd.Flow(field, solver=solver, **options)
        return lambda y: module(y, graph)

    tolerances = {"rtol": 1e-3, "atol": 1e-4}
    pairs = {
        "rk4_38": (flow("rk4_38", num_steps=1), rival("rk4")),
        "rk4_38_ten_steps": (
            flow("rk4_38", num_steps=10),
            rival("rk4", options={"step_size": 0.1}),
        ),
        "dopri5": (flow("dopri5", **tolerances), rival("dopri5", **tolerances)),
    }
    if device.startswith("cuda"):
        captured = flow("rk4_38", num_steps=1, capture=True)
        pairs["rk4_38_captured"] = (captured, rival("rk4"))
    found: dict[str, Any] = {}
    for name, (ours, theirs) in pairs.items():
        gap = (ours(h) - theirs(h)).abs().max().item()
        runs = {"ours": train(ours), "rival": train(theirs)}
        times = side_by_side(runs, device, repeats=40)
        found[name] = {
            "milliseconds": times["ours"],
            "rival_milliseconds": times["rival"],
            "ratio": times["ours"] / times["rival"],
            "largest_difference": gap,
        }
    return found


def one_memory(device: str, gradient: str, num_steps: str) -> dict[str, Any]:
    """Peak memory of one solve, and its gradient (meant for a process of its own)."""
    on_gpu = device.startswith("cuda")
    dtype = torch.float32 if on_gpu else torch.float64
    torch.manual_seed(0)
    nodes = 10_000 if on_gpu else 1000
    graph = citation_graph(nodes, 2 * nodes).to(device, dtype)
    field = gd.GraphConvField([64, 64], final_activation="tanh").to(device, dtype)
    h = torch.randn(nodes, 64, device=device, dtype=dtype)

    def run(steps: int) -> list[Tensor]:
        start = h.clone().requires_grad_()
        flow = gd.Flow(field, solver="rk4", num_steps=steps, gradient=gradient)
        loss = flow(start, graph).square().sum()
        return list(torch.autograd.grad(loss, [start, *field.parameters()]))

    run(4)
    kept: list[list[Tensor]] = []
    peak = peak_memory_mib(lambda: kept.append(run(int(num_steps))), device)
    norms = [gradient.double().norm().item() for gradient in kept[0]]
    sums = [(gradient.double() * torch.arange(gradient.numel(), device=device, dtype=torch.float64)
             .cos().reshape(gradient.shape)).sum().item() for gradient in kept[0]]  # fmt: skip
    return {"peak_mib": peak, "gradient_norms": norms, "gradient_sums": sums}


def memory(device: str) -> dict[str, Any]:
    """`checkpoint` against `backprop` over 1024 steps, and `adjoint` at 64 and 4096."""

    def measured(gradient: str, steps: int) -> dict[str, Any]:
        return in_fresh_process(__file__, "--device", device, "--one-memory", f"{gradient}:{steps}")

    backprop, checkpoint = measured("backprop", 1024), measured("checkpoint", 1024)
    short, long = measured("adjoint", 64), measured("adjoint", 4096)
    gaps = [
        abs(a - b) / max(abs(a), 1e-300)
        for key in ("gradient_norms", "gradient_sums")
        for a, b in zip(backprop[key], checkpoint[key], strict=True)
    ]
    return {
        "backprop_1024_mib": backprop["peak_mib"],
        "checkpoint_1024_mib": checkpoint["peak_mib"],
        "checkpoint_over_backprop": checkpoint["peak_mib"] / backprop["peak_mib"],
        "checkpoint_gradient_gap": max(gaps),
        "adjoint_64_mib": short["peak_mib"],
        "adjoint_4096_mib": long["peak_mib"],
        "adjoint_4096_over_64": long["peak_mib"] / max(short["peak_mib"], 1e-9),
    }


def batch() -> dict[str, Any]:
    """64 samples whose stiffness spans a factor of 100: counts in the batch and alone."""
    rates = torch.logspace(0, 2, 64, dtype=torch.float64)

    def f(t: Tensor, y: Tensor, rate: Tensor) -> Tensor:
        return -rate * (y - torch.cos(t))

    y0 = torch.zeros(64, 3, dtype=torch.float64)
    options: dict[str, Any] = {"solver": "dopri5", "rtol": 1e-6, "atol": 1e-8, "dense": False}
    interval = torch.tensor([0.0, 2.0], dtype=torch.float64)
    together = gd.solve(f, y0, interval, (rates[:, None],), batch_dims=1, **options).stats
    different = 0
    for index, rate in enumerate(rates):
        alone = gd.solve(f, y0[index], interval, (rate,), **options).stats
        different += int(
            (alone.accepted, alone.rejected) != (together.accepted[index], together.rejected[index])
        )
    return {
        "samples": 64,
        "samples_whose_counts_differ": different,
        "fewest_steps": int(together.accepted.min()),
        "most_steps": int(together.accepted.max()),
    }


PARTS: dict[str, Part] = {
    "evaluations": lambda device: evaluations(),
    "time": time,
    "memory": memory,
    "batch": lambda device: batch(),
}

if __name__ == "__main__":
    script(__doc__, "flows", {}, PARTS, PARTS, one_memory)
