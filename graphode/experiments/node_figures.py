"""Pictures of node classification, drawn from the files of run folders."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.ticker
import numpy as np
from cycler import cycler

from graphode.experiments.run_folder import ARRAYS, RESULT, read_json, read_metrics

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.collections import LineCollection

# Dark to light would rank the models; these do not.
COLORS = ("#4c72b0", "#dd8452", "#55a868", "#8172b3", "#937860", "#da8bc3", "#8c8c8c")
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.92",
    "grid.linewidth": 0.8,
    "axes.edgecolor": "0.4",
    "xtick.color": "0.3",
    "ytick.color": "0.3",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.4,
    "axes.prop_cycle": cycler(color=COLORS),
}


@contextmanager
def picture(
    path: Path, panels: int = 1, width: float = 4.2, height: float = 3.0, rows: int = 1
) -> Iterator[Any]:
    """Axes side by side, row after row, in one quiet style, saved to `path`."""
    with matplotlib.rc_context(STYLE):
        size = (width * panels, height * rows)
        figure, axes = plt.subplots(rows, panels, figsize=size, layout="constrained", squeeze=False)
        yield axes.ravel()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=160)
        plt.close(figure)


def curve(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Epochs, mean and standard deviation of a metric over all members, whatever their chunks.

    Of the epochs that have a value: not all are evaluated.
    """
    sums: dict[int, np.ndarray] = {}
    for row in read_metrics(folder):
        if row.get(name) is None:
            continue
        count, mean, std = row["members"], row[name], row[f"{name}_std"]
        moments = count * np.array([1.0, mean, std**2 + mean**2])
        sums[row["epoch"]] = sums.get(row["epoch"], np.zeros(3)) + moments
    epochs = np.array(sorted(sums))
    count, first, second = np.array([sums[epoch] for epoch in epochs]).T
    mean = first / count
    return epochs, mean, np.sqrt(np.maximum(second / count - mean**2, 0))


def class_style(label: int) -> tuple[str, str]:
    """Name and colour of a class; −1 is that of nodes without one."""
    return ("none", "#999999") if label < 0 else (str(label), COLORS[label % len(COLORS)])


def trajectories(runs: Mapping[str, Path], path: Path) -> None:
    """Each node's path from the encoder's state (pale) to the readout's (dot), by class.

    The few nodes that go farthest are outside the view.
    """
    with picture(path, len(runs), 3.4, 3.6) as panels:
        for axes, (title, folder) in zip(panels, runs.items(), strict=True):
            with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
                paths, labels = arrays["projected"], arrays["labels"]
            colors = np.array([class_style(label)[1] for label in labels])
            for name, color in map(class_style, np.unique(labels)):
                axes.plot([], [], "o", ms=3, color=color, label=name)
            axes.legend(
                title="class", loc="upper center", bbox_to_anchor=(0.5, -0.09), ncols=7,
                handletextpad=0, columnspacing=0.8,
            )  # fmt: skip
            # In an order of chance: the last class would hide the others.
            order = np.random.default_rng(0).permutation(len(labels))
            paths, colors = paths[:, order], colors[order]
            lines = LineCollection(list(paths.swapaxes(0, 1)), colors=colors, lw=0.35, alpha=0.35)
            axes.add_collection(lines)
            axes.scatter(*paths[-1].T, c=colors, s=3, linewidths=0, zorder=3)
            # A few nodes go far; the whole paths of the rest are what there is to see.
            ends = np.concatenate([paths.min(0), paths.max(0)])
            (left, right), (low, high) = np.percentile(ends, (0.3, 99.7), axis=0).T
            axes.set_xlim(left - 0.03 * (right - left), right + 0.03 * (right - left))
            axes.set_ylim(low - 0.03 * (high - low), high + 0.03 * (high - low))
            axes.set_title(title)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_xlabel("first principal component")
            axes.grid(False)
        panels[0].set_ylabel("second principal component")


def accuracies(panels: Mapping[str, Mapping[str, Path]], path: Path) -> None:
    """Test accuracy along training, with a band of one standard deviation."""
    with picture(path, len(panels)) as row:
        for axes, (title, runs) in zip(row, panels.items(), strict=True):
            for label, folder in runs.items():
                _band(axes, folder, "test_accuracy", label, 100)
            # The first epochs, from chance up, are as fast for all.
            last = [100 * curve(folder, "test_accuracy")[1][-1] for folder in runs.values()]
            axes.set_ylim(max(axes.get_ylim()[0], min(last) - 20), max(last) + 4)
            axes.set_title(title)
            axes.set_xlabel("epoch")
        row[0].set_ylabel("test accuracy, %")
        row[-1].legend(loc="best")


def evaluations(runs: Mapping[str, Path], title: str, path: Path) -> None:
    """Evaluations of the field in a training solve, along training."""
    with picture(path) as (axes,):
        for label, folder in runs.items():
            _band(axes, folder, "evaluations", label)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
        axes.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
        axes.set_yticks([10, 20, 50, 100, 200, 500])
        axes.set_xlabel("epoch")
        axes.set_ylabel("evaluations per solve")
        axes.set_title(title)
        axes.legend(loc="best")


def energies(runs: Mapping[str, Path], title: str, path: Path) -> None:
    """The share of a state that differs between neighbours, along the flow."""
    with picture(path) as (axes,):
        for label, folder in runs.items():
            with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
                times, energy = arrays["times"], arrays["energy"]
            mean, std = energy.mean(0), energy.std(0)
            (line,) = axes.plot(times / times[-1], mean, label=label)
            axes.fill_between(
                times / times[-1], mean - std, mean + std, color=line.get_color(), alpha=0.15, lw=0
            )
        axes.set_ylim(bottom=0)
        axes.set_xlabel("depth, t / S")
        axes.set_ylabel("Dirichlet energy / ‖h‖²")
        axes.set_title(title)
        axes.legend(loc="best")


def depths(runs: Mapping[int, Path], title: str, path: Path) -> None:
    """Accuracy of GCN* by its number of layers."""
    results = [read_json(folder / RESULT)["metrics"]["test_accuracy"] for folder in runs.values()]
    # A run whose members all failed has neither, and no mark.
    means, stds = (
        [np.nan if (value := result[name]) is None else 100 * value for result in results]
        for name in ("mean", "std")
    )
    with picture(path, width=3.6) as (axes,):
        axes.errorbar(list(runs), means, stds, fmt="o-", capsize=3, markersize=4)
        axes.set_xticks(list(runs))
        axes.set_xlabel("layers of GCN*")
        axes.set_ylabel("test accuracy, %")
        axes.set_title(title)


def _band(axes: Any, folder: Path, name: str, label: str, factor: float = 1.0) -> None:
    epochs, mean, std = curve(folder, name)
    (line,) = axes.plot(epochs, factor * mean, label=label)
    low, high = factor * (mean - std), factor * (mean + std)
    axes.fill_between(epochs, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
