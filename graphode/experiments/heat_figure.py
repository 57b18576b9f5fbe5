"""The picture of the heat experiment: the heat on the graph, and what each solver's error cost."""

from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.colors
import matplotlib.ticker
import numpy as np
import torch
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

from graphode.graphs import Graph

matplotlib.use("Agg")
from matplotlib import pyplot as plt

_ITERATIONS = 300  # of the layout
_TIMES = (0.0, 0.1, 0.4)
_LABELLED_LEFT = ("tsit5", "dopri8", "collocation")


def layout(graph: Graph) -> np.ndarray:
    """Node positions whose distances resemble those along edges, by stress majorisation.

    Gansner, Koren, North (2004), "Graph drawing by stress majorization".
    """
    links = (graph.to_dense() != 0).double().numpy()
    distances = shortest_path(links, unweighted=True)
    weights = 1 / np.maximum(distances, 1) ** 2
    np.fill_diagonal(weights, 0)
    laplacian = np.diag(weights.sum(1)) - weights
    solve = np.linalg.pinv(laplacian)
    angles = np.linspace(0, 2 * np.pi, len(links), endpoint=False)
    places = np.stack([np.cos(angles), np.sin(angles)], 1)
    for _ in range(_ITERATIONS):
        gaps = np.linalg.norm(places[:, None] - places[None], axis=-1)
        pull = np.where(gaps > 0, weights * distances / np.where(gaps > 0, gaps, 1), 0)
        places = solve @ ((np.diag(pull.sum(1)) - pull) @ places)
    return places


def draw(result: dict[str, Any], laplacian: Graph, h0: Tensor, path: Path) -> None:
    """Write the picture to `path`."""
    figure = plt.figure(figsize=(11, 3.6), layout="constrained")
    grid = figure.add_gridspec(1, 4, width_ratios=[1, 1, 1, 1.7])
    places = layout(laplacian)
    dense = laplacian.to_dense()
    norm = matplotlib.colors.LogNorm(1e-3, 1)
    sources, targets = np.nonzero(np.triu(dense.numpy(), 1))
    for column, t in enumerate(_TIMES):
        axes = figure.add_subplot(grid[column])
        heat = (torch.linalg.matrix_exp(-t * dense) @ h0)[:, 0].numpy()
        for a, b in zip(sources, targets, strict=True):
            axes.plot(*places[[a, b]].T, color="0.8", linewidth=0.6, zorder=1)
        axes.scatter(
            *places.T, c=np.maximum(heat, 1e-4), cmap="inferno", s=42, zorder=2,
            norm=norm, edgecolors="0.3", linewidths=0.4,
        )  # fmt: skip
        axes.set_title(f"t = {t:g}", fontsize=10)
        axes.set_aspect("equal")
        axes.axis("off")
    colors = plt.cm.ScalarMappable(norm, "inferno")
    figure.colorbar(colors, ax=figure.axes, location="left", shrink=0.75, label="heat", pad=0.01)
    _draw_costs(figure.add_subplot(grid[3]), result["rows"])
    figure.savefig(path, dpi=160)
    plt.close(figure)


def _draw_costs(axes: Any, rows: list[dict[str, Any]]) -> None:
    shown: dict[tuple[int, str], list[str]] = {}
    for row in rows:
        if "failure" in row or row["equation"] != "heat":
            continue
        color, marker = ("tab:red", "o") if row["adaptive"] else ("tab:blue", "s")
        axes.loglog(row["evaluations"], row["error"], marker, color=color, markersize=5)
        # Methods that coincide here share a label.
        place = (row["evaluations"], f"{row['error']:.1e}")
        shown.setdefault(place, []).append(row["solver"])
    for (evaluations, error), names in shown.items():
        axes.annotate(
            ", ".join(names),
            (evaluations, float(error)),
            xytext=(-6, -3) if names[0] in _LABELLED_LEFT else (6, 0),
            ha="right" if names[0] in _LABELLED_LEFT else "left",
            textcoords="offset points",
            fontsize=7.5,
        )
    axes.plot([], [], "o", color="tab:red", label="adaptive")
    axes.plot([], [], "s", color="tab:blue", label="fixed step")
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    axes.margins(x=0.25, y=0.12)
    axes.xaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
    axes.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    axes.set_xticks([100, 200, 500])
    axes.set_xlabel("evaluations of the field")
    axes.set_ylabel("largest error")
    axes.set_title("error against matrix exponential", fontsize=10)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
