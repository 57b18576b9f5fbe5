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
# Mean and deviation over systems by K, by the name of the line and of the metric.
Errors = dict[tuple[str, str], dict[int, tuple[float | None, float | None]]]
COLORS = {
    "Persistence": "#a8703a",
    "Harmonic motion": "#6b7485",
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
    """Who is near whom, in the plane and as a matrix; a row has the colour of its particle."""
    whole, times, result = _example(folders)
    reach, n = result["config"]["r"] / 2, whole.shape[1]
    chosen = np.linspace(0, len(whole) - 1, SNAPSHOTS).astype(int)
    extent = 1.1 * np.abs(whole[..., :2]).max()
    colors = [matplotlib.color_sequences["tab10"][i % 10] for i in range(n)]
    with picture(path, SNAPSHOTS, 1.75, 1.9, rows=2) as axes:
        for plane, matrix, step in zip(axes[:SNAPSHOTS], axes[SNAPSHOTS:], chosen, strict=True):
            x = whole[step, :, :2]
            near = np.linalg.norm(x[:, None] - x, axis=-1) <= reach
            near &= ~np.eye(n, dtype=bool)
            for i, j in np.argwhere(np.triu(near)):
                plane.plot(*x[[i, j]].T, color="0.65", lw=1.2, zorder=1)
            plane.scatter(*x.T, c=colors, s=22, zorder=2)
            plane.set(xlim=(-extent, extent), ylim=(-extent, extent), aspect="equal")
            plane.set_title(f"t = {times[step]:.1f}")
            matrix.imshow(near, cmap="Greys", vmin=0, vmax=1.4)
            # Dots beside rows and columns say which particle is which.
            matrix.scatter(np.full(n, -1), np.arange(n), c=colors, s=16)
            matrix.scatter(np.arange(n), np.full(n, n), c=colors, s=16)
            for one in (plane, matrix):
                one.set(xticks=[], yticks=[])
                one.grid(visible=False)
                one.spines[:].set_visible(True)
                one.spines[:].set_color("0.8")
        axes[0].set(xlabel="$x_1$", ylabel="$x_2$")
        axes[SNAPSHOTS].set_xlabel("neighbour")
        axes[SNAPSHOTS].set_ylabel("particle")


def growth(folders: Folders, path: Path) -> None:
    """How errors grow with the number of steps extrapolated."""
    found: Errors = {}
    for name in folders:
        result = read_json(folders[name] / RESULT)
        for metric, values in result["metrics"].items():
            at = dict(zip(result["horizons"], values, strict=True))
            found[name, metric] = {K: (value["mean"], value["std"]) for K, value in at.items()}
    draw_growth(found, path)


def draw_growth(errors: Errors, path: Path) -> None:
    """Means over systems, and bands of one standard deviation."""
    panels = {"mape": "MAPE, %", "median_ape": "median APE, %", "rmse": "RMSE"}
    horizons: list[int] = []
    with picture(path, 3, 3.7, 3.6) as axes:
        for one, (metric, title) in zip(axes, panels.items(), strict=True):
            for name, color in COLORS.items():
                if (name, metric) not in errors:
                    continue
                horizons = list(errors[name, metric])
                values = list(errors[name, metric].values())
                mean, std = np.array(values, dtype=float).T  # None, where not finite, is NaN
                one.plot(horizons, mean, "o-", color=color, ms=3, label=name)
                # On a logarithmic axis a band that reached 0 would reach the floor.
                low = np.maximum(mean - std, mean / 5)
                one.fill_between(horizons, low, mean + std, color=color, alpha=0.13, lw=0)
            one.set(xscale="log", yscale="log", xlabel="steps extrapolated, K", title=title)
            one.set_xticks(horizons, [str(K) for K in horizons])
            one.minorticks_off()
        axes[0].figure.legend(
            *axes[0].get_legend_handles_labels(),
            loc="outside lower center",
            ncols=5,
            title="mean over systems; bands: ± 1 standard deviation, cut at a fifth of the mean",
            title_fontsize=8.5,
        )


def extrapolation(folders: Folders, path: Path) -> None:
    """Five steps at a time, where the interaction is strongest."""
    names = [name for name in COLORS if name in folders and name != "Persistence"]
    first, particle, channel = _strongest(folders)
    steps = slice(first, first + STEPS_SHOWN + 1)
    dt = read_json(folders[names[0]] / RESULT)["config"]["dt"]
    columns = -(-len(names) // 2) if len(names) > 4 else len(names)
    with picture(path, columns, 2.5, 2.3, rows=-(-len(names) // columns)) as axes:
        bounds = None
        for one in axes[len(names) :]:
            one.remove()
        for place, (one, name) in enumerate(zip(axes, names, strict=False)):
            with np.load(folders[name] / ARRAYS) as arrays:
                true = arrays["true"][steps, particle, channel]
                found = arrays["forecast_5"][steps, particle, channel]
            time = np.arange(len(true)) * dt
            (truth,) = one.plot(time, true, color="0.75", lw=3.5, solid_capstyle="round")
            for start in range(-first % 5, len(true) - 1, 5):
                # From the true state, through its five forecasts.
                pieces = [true[start], *found[start + 1 : start + 6]]
                one.plot(time[start : start + len(pieces)], pieces, color=COLORS[name], lw=1.3)
            margin = 0.15 * np.ptp(true) + 1e-6
            bounds = bounds or (true.min() - margin, true.max() + margin)
            if not place:
                (forecast,) = one.plot([], [], color=COLORS[name], lw=1.3)
                one.legend([truth, forecast], ["truth", "5 steps forecast"])
            one.set(title=name, ylim=bounds)
            if place % columns:
                one.set_yticklabels([])
            else:
                one.set_ylabel("velocity of one particle")
            if place + columns < len(names):
                one.set_xticklabels([])
            else:
                one.set_xlabel("time")


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
            axes[0].plot([], [], color=color, label=f"$\\dot d$ = ${rate:g}$")
            error = np.abs(learned[:, place] - true[place])
            axes[1].plot(distances, error.mean(0), color=color)
            axes[1].plot(distances, error.max(0), color=color, lw=0.8, ls="--")
        axes[0].plot([], [], color="0.6", lw=5, alpha=0.5, label="true")
        axes[0].set(xlabel="distance", title="force between two particles, one line per member")
        axes[0].legend()
        axes[1].plot([], [], color="0.4", label="mean of the members")
        axes[1].plot([], [], color="0.4", lw=0.8, ls="--", label="the worst at each distance")
        axes[1].set(xlabel="distance", yscale="log", title="|learned − true|")
        axes[1].legend()


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
