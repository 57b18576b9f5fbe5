"""The particle simulator: time and convergence of the paper's systems, and cost against number.

    python benchmarks/particles.py --device cpu
    python benchmarks/particles.py --only scaling --figure docs/figures/particles-scaling.png

*Simulation*: 10 systems × 2560 steps of the paper, every jump of the force located, and the largest
change of any state when the tolerance is halved and when the solver is another. *Scaling*: one step
(four evaluations, neighbours found anew) from 10 to 10 000 particles at equal density, and the
slope of its cost. The last line is one JSON object.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from measure import machine, side_by_side

from graphode.data import Particles, simulate
from graphode.data.particle_forces import NearPairs
from graphode.flows import solve

matplotlib.use("Agg")
from matplotlib import pyplot as plt

PARTS = ("simulation", "scaling")
NUMBERS = (10, 30, 100, 300, 1000, 3000, 10_000)


def simulation() -> dict[str, Any]:
    """Seconds for the ten systems of the paper, and how far they are converged."""
    simulate(Particles(duration=0.25))
    start = time.perf_counter()
    found = simulate(Particles(), range(10))
    seconds = time.perf_counter() - start
    finer = simulate(Particles(), range(10), tolerance=5e-13)
    other = simulate(Particles(), range(10), solver="tsit5", tolerance=1e-12)
    return {
        "systems": 10,
        "steps": found.system.num_steps,
        "seconds": seconds,
        "evaluations": found.evaluations,
        "crossings": found.crossings.tolist(),
        "change_by_half_the_tolerance": float((finer.states - found.states).abs().max()),
        "change_by_another_solver": float((other.states - found.states).abs().max()),
    }


def scaling(figure: Path | None) -> dict[str, Any]:
    """Milliseconds of one step against the number of particles, at equal density."""
    runs: dict[str, Callable[[], object]] = {}
    for n in NUMBERS:
        system = Particles().at_density(n)
        field, state = NearPairs(system), system.initial_states([0])[0]
        times = [0.0, system.dt / 8]

        def step(field: Any = field, state: Any = state, times: Any = times) -> object:
            return solve(field, state, times, solver="rk4", num_steps=1, dense=False)

        runs[str(n)] = step
    milliseconds = side_by_side(runs, "cpu", repeats=9)
    counts, cost = np.array(NUMBERS), np.array(list(milliseconds.values()))
    many = counts >= 1000
    slope = float(np.polyfit(np.log(counts[many]), np.log(cost[many]), 1)[0])
    if figure is not None:
        _draw(figure, counts, cost, slope)
    return {"milliseconds_per_step": milliseconds, "slope_from_1000": slope}


def _draw(path: Path, counts: np.ndarray, cost: np.ndarray, slope: float) -> None:
    drawing, axes = plt.subplots(figsize=(5.4, 4), layout="constrained")
    axes.loglog(counts, cost, "o-", label=f"one step of rk4, slope {slope:.2f} from 1000 on")
    axes.loglog(counts, cost[-1] * counts / counts[-1], "k:", lw=1, label="linear")
    axes.set(xlabel="particles, equally dense", ylabel="milliseconds")
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=150)


def main() -> None:
    """Run the parts asked for and print what they found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="only cpu: the simulator runs nowhere else")
    parser.add_argument("--only", choices=PARTS, action="append", help="parts to run; default all")
    parser.add_argument("--figure", type=Path, help="draw the scaling here")
    parser.add_argument("--out", type=Path, help="also write the JSON object to this file")
    arguments = parser.parse_args()
    found: dict[str, Any] = {"benchmark": "particles", "machine": machine("cpu")}
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "simulation": simulation,
        "scaling": lambda: scaling(arguments.figure),
    }
    for name in arguments.only or PARTS:
        print(f"{name} …", file=sys.stderr, flush=True)
        found[name] = parts[name]()
        print(json.dumps(found[name], indent=2), file=sys.stderr, flush=True)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found))


if __name__ == "__main__":
    # Tensors as small as these gain nothing from threads, which wait for each other.
    torch.set_num_threads(1)
    main()
