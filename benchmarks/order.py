"""Measured order of every solver: error against step size, drawn and fitted.

    python benchmarks/order.py --out docs/figures/order.png

Graph heat (exact by matrix exponential) and a nonlinear problem with a known solution, float64.
The slope is fitted to the finer half of the points where 1e-12 < error < 1e-2, since coarse steps
show the order of the next term; the last line is one JSON object.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from measure import machine

import graphode as gd
from graphode.flows.methods import find_method

matplotlib.use("Agg")
from matplotlib import pyplot as plt

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests import problems

SOLVERS = [solver for solver in gd.SOLVERS if solver != "collocation"]
# Twins have nearly the same errors: the one drawn over the other is dashed and has no dots.
TWINS = ("midpoint", "rk4", "implicit_euler")
STEPS = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024]


def errors(solver: str, problem: problems.Problem) -> tuple[np.ndarray, np.ndarray]:
    """Step sizes and errors at the end, where the error is neither rounding nor nonsense."""
    sizes, found = [], []
    for num_steps in STEPS:
        try:
            solution = gd.solve(
                problem.f, problem.y0, [problem.t0, problem.t1], solver=solver, num_steps=num_steps
            )
        except gd.SolveError:
            continue
        error = problem.error(solution.states[-1])
        if 1e-12 < error < 1e-2:
            sizes.append((problem.t1 - problem.t0) / num_steps)
            found.append(error)
    return np.array(sizes), np.array(found)


def main() -> None:
    """Draw the picture and print the slopes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="only cpu: float64 and tiny problems")
    parser.add_argument("--out", type=Path, default=Path("order.png"))
    arguments = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained", sharey=True)
    colors = plt.get_cmap("tab20").colors
    slopes: dict[str, dict[str, float]] = {}
    for axes, name in zip(panels, ("graph heat", "rotating growth"), strict=True):
        for solver, color in zip(SOLVERS, colors, strict=False):
            waves = solver == "leapfrog"
            order = find_method(solver, 1e-6, 1e-6).order
            if name == "graph heat":
                problem = problems.wave() if waves else problems.heat()
            else:
                # A first-order method would need thousands of steps for a long span.
                span = 2.0 if order == 1 else 10.0
                problem = problems.kepler() if waves else problems.gompertz(span)
            sizes, found = errors(solver, problem)
            fine = slice(len(sizes) // 2, None)
            slope = float(np.polyfit(np.log(sizes[fine]), np.log(found[fine]), 1)[0])
            slopes.setdefault(solver, {"order": order})[name] = slope
            over = solver in TWINS
            style: dict[str, Any] = {"color": color, "label": solver, "zorder": 3 if over else 2}
            style |= {"linewidth": 2, "linestyle": (0, (2, 2))} if over else {"linewidth": 1}
            axes.loglog(sizes, found, **style, marker=None if over else "o", markersize=3)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("step size")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    panels[0].set_ylabel("error at the end")
    lines = panels[0].get_legend_handles_labels()[0]
    labels = [
        f"{solver}{' *' if solver == 'leapfrog' else ''}   {' / '.join(f'{x:.2f}' for x in both)}"
        for solver, (_, *both) in ((solver, found.values()) for solver, found in slopes.items())
    ]
    figure.legend(
        lines, labels, loc="outside right upper", fontsize=8, frameon=False,
        title="solver   slope left / right", title_fontsize=8,
    )  # fmt: skip
    figure.supxlabel("* waves on the graph (left), Kepler's problem (right)", fontsize=7)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.out, dpi=150)
    print(json.dumps({"benchmark": "order", "machine": machine("cpu"), "slopes": slopes}))


if __name__ == "__main__":
    main()
