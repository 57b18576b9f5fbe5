"""Pictures of the multi-agent experiment, drawn from the files of run folders.

trajectories.png    positions and velocities of one system
adjacency.png       snapshots of A_t
growth.png          errors against K, ± 1 standard deviation over systems
extrapolation.png   forecasts of 5 steps, then the true state again, beside the truth
force.png           the learned force between two particles over the true one
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from graphode.experiments.node_figures import picture
from graphode.experiments.run_folder import ARRAYS, RESULT, read_json

Folders = Mapping[str, Path]  # by the name of the line
COLORS = {
    "Persistence": "#c3c9d3",
    "Harmonic motion": "#8a94a6",
    "Static": "#e4572e",
    "Neural ODE": "#b565d8",
    "GDE": "#17a398",
    "GDE-II": "#2f6fed",
    "GDE-II, self-loops": "#7db8f7",
    "GMDE-II": "#e0a100",
    "Pair force (tuned)": "#1d2430",
}
SNAPSHOTS = 6
STEPS_SHOWN = 60


def draw_all(folders: Folders, out: Path) -> list[Path]:
    """Every picture for which there are runs; returns their paths."""
    made = []
    for name, (needed, draw) in PICTURES.items():
        if set(needed) <= set(folders):
            made.append(out / f"{name}.png")
            draw(folders, made[-1])
    return made


def trajectories(folders: Folders, path: Path) -> None:
    """Positions and velocities of one system, both coordinates."""
    whole, times, _ = _example(folders)
    labels = ("$x_1$", "$x_2$", "$x_1'$", "$x_2'$")
    with picture(path, 4, 2.6, 2.6) as axes:
        for place, (one, label) in enumerate(zip(axes, labels, strict=True)):
            one.set_prop_cycle(color=matplotlib.color_sequences["tab10"])
            one.plot(times, whole[:, :, place], lw=1)
            one.axvline(times[len(times) // 2], color="0.4", ls=":", lw=1)
            one.set(xlabel="time", title=label)
        axes[0].annotate("test", (0.53, 0.02), xycoords="axes fraction", color="0.4", fontsize=8)


def adjacency(folders: Folders, path: Path) -> None:
    """Who is near whom, in the plane and as a matrix."""
    whole, times, result = _example(folders)
    reach, n = result["config"]["r"] / 2, whole.shape[1]
    chosen = np.linspace(0, len(whole) - 1, SNAPSHOTS).astype(int)
    extent = 1.1 * np.abs(whole[..., :2]).max()
    with picture(path, SNAPSHOTS, 1.7, 3.5) as plain:
        figure = plain[0].figure
        for one in plain:
            one.remove()
        axes = figure.subplots(2, SNAPSHOTS)
        for column, step in zip(axes.T, chosen, strict=True):
            x = whole[step, :, :2]
            near = np.linalg.norm(x[:, None] - x, axis=-1) <= reach
            near &= ~np.eye(n, dtype=bool)
            for i, j in np.argwhere(np.triu(near)):
                column[0].plot(*x[[i, j]].T, color="0.65", lw=1.2, zorder=1)
            column[0].scatter(*x.T, c=np.arange(n), cmap="tab10", s=22, zorder=2)
            column[0].set(
                xlim=(-extent, extent),
                ylim=(-extent, extent),
                aspect="equal",
                title=f"t = {times[step]:.1f}",
            )
            column[1].imshow(near, cmap="viridis", vmin=0, vmax=1)
            for one in column:
                one.set(xticks=[], yticks=[])
                one.grid(visible=False)
                one.spines[:].set_visible(True)
                one.spines[:].set_color("0.8")


def growth(folders: Folders, path: Path) -> None:
    """How errors grow with the number of steps extrapolated."""
    horizons: list[int] = []
    panels = {"mape": "MAPE, %", "median_ape": "median APE, %", "rmse": "RMSE"}
    with picture(path, 3, 3.7, 3.4) as axes:
        for one, (metric, title) in zip(axes, panels.items(), strict=True):
            for name, color in COLORS.items():
                if name not in folders:
                    continue
                horizons = read_json(folders[name] / RESULT)["horizons"]
                with np.load(folders[name] / ARRAYS) as arrays:
                    values = arrays[metric]
                mean, std = values.mean(0), values.std(0)
                one.plot(horizons, mean, "o-", color=color, ms=3, label=name)
                # On a logarithmic axis a band that reached 0 would reach the floor.
                low = np.maximum(mean - std, mean / 5)
                one.fill_between(horizons, low, mean + std, color=color, alpha=0.13, lw=0)
            one.set(xscale="log", yscale="log", xlabel="steps extrapolated, K", title=title)
            one.set_xticks(horizons, [str(K) for K in horizons])
            one.minorticks_off()
        axes[0].figure.legend(
            *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5
        )


def extrapolation(folders: Folders, path: Path) -> None:
    """Five steps at a time, where the interaction is strongest."""
    names = [name for name in COLORS if name in folders and name != "Persistence"]
    first, particle, channel = _strongest(folders)
    steps = slice(first, first + STEPS_SHOWN + 1)
    dt = read_json(folders[names[0]] / RESULT)["config"]["dt"]
    with picture(path, len(names), 1.85, 2.5) as axes:
        bounds = None
        for one, name in zip(axes, names, strict=True):
            with np.load(folders[name] / ARRAYS) as arrays:
                true = arrays["true"][steps, particle, channel]
                found = arrays["forecast_5"][steps, particle, channel]
            time = np.arange(len(true)) * dt
            one.plot(time, true, color="0.75", lw=3.5, solid_capstyle="round")
            for start in range(-first % 5, len(true) - 1, 5):
                # From the true state, through its five forecasts.
                pieces = [true[start], *found[start + 1 : start + 6]]
                one.plot(time[start : start + len(pieces)], pieces, color=COLORS[name], lw=1.3)
            margin = 0.15 * np.ptp(true) + 1e-6
            bounds = bounds or (true.min() - margin, true.max() + margin)
            one.set(title=name, ylim=bounds, xlabel="time")
            if one is not axes[0]:
                one.set_yticklabels([])
        axes[0].set_ylabel("velocity of one particle")


def force(folders: Folders, path: Path) -> None:
    """What was learned of the law, and by how much it is off."""
    with np.load(folders["Pair force (tuned)"] / ARRAYS) as arrays:
        distances, rates = arrays["force_distances"], arrays["force_rates"]
        learned, true = arrays["force_learned"], arrays["force_true"]
    colors = ("#17a398", "#1d2430", "#e4572e")
    with picture(path, 2, 4.2, 3.1) as axes:
        for place, (rate, color) in enumerate(zip(rates, colors, strict=True)):
            axes[0].plot(distances, true[place], color=color, lw=5, alpha=0.25)
            axes[0].plot(distances, learned[:, place].T, color=color, lw=0.7)
            axes[0].plot([], [], color=color, label=f"$\\dot d$ = {rate:g}")
            error = np.abs(learned[:, place] - true[place])
            axes[1].plot(distances, error.mean(0), color=color)
            axes[1].plot(distances, error.max(0), color=color, lw=0.8, ls="--")
        axes[0].plot([], [], color="0.6", lw=5, alpha=0.5, label="true")
        axes[0].set(xlabel="distance", title="force between two particles, one line per member")
        axes[0].legend()
        axes[1].set(
            xlabel="distance", yscale="log", title="|learned − true|, mean and worst member"
        )


def _example(folders: Folders) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """A whole trajectory, its times, and the result of its run."""
    folder = folders["Harmonic motion"]
    result = read_json(folder / RESULT)
    with np.load(folder / ARRAYS) as arrays:
        whole = arrays["whole"]
    return whole, np.arange(len(whole)) * result["config"]["dt"], result


def _strongest(folders: Folders) -> tuple[int, int, int]:
    """Step, particle and velocity for which harmonic motion is most wrong over a while."""
    with np.load(folders["Harmonic motion"] / ARRAYS) as arrays:
        error = np.abs(arrays["forecast_5"] - arrays["true"])[..., 2:]
    window = min(STEPS_SHOWN, len(error) - 1)
    sums = np.cumsum(np.concatenate([np.zeros((1, *error.shape[1:])), error]), 0)
    sums = sums[window:] - sums[:-window]
    step, particle, channel = np.unravel_index(int(sums.argmax()), sums.shape)
    return int(step) // 5 * 5, int(particle), int(channel) + 2


PICTURES: dict[str, tuple[Sequence[str], Callable[[Folders, Path], None]]] = {
    "trajectories": (("Harmonic motion",), trajectories),
    "adjacency": (("Harmonic motion",), adjacency),
    "growth": ((), growth),
    "extrapolation": (("Harmonic motion",), extrapolation),
    "force": (("Pair force (tuned)",), force),
}
