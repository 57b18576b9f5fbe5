"""Pictures of traffic forecasting, drawn from the files of run folders.

gaps.png           how far apart samples are, by the probability to keep one
training.png       validation error along training
forecasts.png      forecasts against truth for a lively, a middling and a quiet sensor
by-gap.png         error by the time from the last sample to the forecast
by-time.png        error by the time of day
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from graphode.experiments.node_figures import COLORS, curve, picture
from graphode.experiments.run_folder import ARRAYS, METRICS
from graphode.experiments.traffic_claims import enough, rmse_by
from graphode.experiments.traffic_units import Units

Folders = Mapping[tuple[str, str], Path]  # by line and column of the table
SHOWN_GAP = 15
COMPARED = {
    "GCDE-GRU": COLORS[1],
    "GCGRU": COLORS[0],
    "GRU": COLORS[2],
    "Persistence": "0.35",
    "Historical average": "0.65",
}


def draw_all(folders: Folders, out: Path, units: Units) -> Iterator[Path]:
    """Every picture that these runs allow."""
    for name, draw in PICTURES.items():
        path = out / f"{name}.png"
        if draw(folders, path, units):
            yield path


def _columns(folders: Folders) -> list[str]:
    found = {column for _, column in folders if column.endswith("%")}
    return sorted(found, key=lambda column: float(column.removesuffix(" %")))


def _lines(folders: Folders, column: str) -> dict[str, Path]:
    """In the order of drawing: ours last, over the others."""
    order = reversed(COMPARED)
    return {line: folders[line, column] for line in order if (line, column) in folders}


def gap_histograms(folders: Folders, path: Path, units: Units) -> bool:
    """The training data of the first member."""
    columns = [column for column in _columns(folders) if column != "100 %"]
    if not columns:
        return False
    with picture(path, len(columns), 2.8, 2.5) as panels:
        for axes, column in zip(panels, columns, strict=True):
            folder = next(f for (_, c), f in folders.items() if c == column)
            with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
                gaps = arrays["training_gaps"]
            bins = np.arange(0.5, SHOWN_GAP + 1.5)
            axes.hist(np.minimum(gaps, SHOWN_GAP), bins, density=True, color=COLORS[0], rwidth=0.85)
            axes.set_title(f"keep {column}: mean gap {gaps.mean():.2f}")
            axes.set_xlabel(f"gap, {units.intervals}")
            axes.set_xticks([1, 5, 10, SHOWN_GAP], ["1", "5", "10", f"≥ {SHOWN_GAP}"])
            axes.grid(axis="x", visible=False)
        panels[0].set_ylabel("share of the gaps")
        top = max(axes.get_ylim()[1] for axes in panels)
        for axes in panels:
            axes.set_ylim(0, top)
    return True


def training_curves(folders: Folders, path: Path, units: Units) -> bool:
    """Validation RMSE, mean over members; each has validation data of its own, as kept."""
    columns = _columns(folders)
    trained = {
        column: {
            line: folder
            for line, folder in _lines(folders, column).items()
            if (folder / METRICS).exists()
        }
        for column in columns
    }
    columns = [column for column in columns if trained[column]]
    if not columns:
        return False
    with picture(path, len(columns), 3.0, 2.7) as panels:
        for axes, column in zip(panels, columns, strict=True):
            for line, folder in trained[column].items():
                epochs, mean, _ = curve(folder, "validation_rmse")
                axes.plot(epochs + 1, mean, label=line, color=COMPARED[line])
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_title(f"keep {column}")
            axes.set_xlabel("epoch")
        panels[0].set_ylabel(units.named("validation RMSE"))
        _legend_below(panels[0])
    return True


def forecasts(folders: Folders, path: Path, units: Units) -> bool:
    """A day of the test, sparsest data: what GCGRU and GCDE-GRU said, and what was measured."""
    columns = _columns(folders)
    runs = {
        line: folder
        for line, folder in (_lines(folders, columns[0]) if columns else {}).items()
        if line in ("GCGRU", "GCDE-GRU")
    }
    if not runs:
        return False
    loaded = {}
    for line, folder in runs.items():
        with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
            loaded[line] = dict(arrays)
    first = next(iter(loaded.values()))
    sensors = first["sensors"]
    with picture(path, len(sensors), 4.6, 2.7) as panels:
        for place, (axes, sensor) in enumerate(zip(panels, sensors, strict=True)):
            start = first["truth_times"][0]
            hours = (first["truth_times"] - start) * units.minutes / 60
            truths = first["truths"][:, place]
            axes.plot(hours, truths, color="0.55", lw=1.0, label="measured")
            asked = np.isin(first["truth_times"].round(3), first["forecast_times"].round(3))
            style = {"marker": "|", "linestyle": "none", "color": "0.1", "markersize": 7}
            axes.plot(hours[asked], truths[asked], label="measured, where forecast", **style)
            for line, arrays in reversed(loaded.items()):
                when = (arrays["forecast_times"] - start) * units.minutes / 60
                style = {"marker": "o", "linestyle": "none", "color": COMPARED[line]}
                if line == "GCGRU":  # a ring, which does not hide the other's dot
                    style |= {"markersize": 4.5, "markerfacecolor": "none", "markeredgewidth": 0.8}
                else:
                    style |= {"markersize": 2.0}
                axes.plot(when, arrays["forecasts"][:, place], label=line, **style)
            axes.set_title(f"sensor {sensor}")
            axes.set_xlabel("hours into the test")
            axes.set_xticks(np.arange(0, hours.max() + 3, 6))
        panels[0].set_ylabel(units.named(units.quantity))
        _legend_below(panels[0])
    return True


def by_gap(folders: Folders, path: Path, units: Units) -> bool:
    """Error by gap, and the margin of GCDE-GRU over GCGRU, from the sparsest data."""
    columns = _columns(folders)
    runs = _lines(folders, columns[0]) if columns else {}
    found = {line: rmse_by(folder, "gap") for line, folder in runs.items()}
    if not any(len(enough(count)) > 1 for _, _, count in found.values()):
        return False
    compared = {"GCDE-GRU", "GCGRU"} <= runs.keys()
    with picture(path, 1 + compared, 3.8, 3.0) as panels:
        for line, (mean, std, count) in found.items():
            gaps = enough(count)
            panels[0].plot(gaps, mean[gaps], "o-", markersize=3, label=line, color=COMPARED[line])
            band = mean[gaps] - std[gaps], mean[gaps] + std[gaps]
            panels[0].fill_between(gaps, *band, color=COMPARED[line], alpha=0.15, lw=0)
        panels[0].set_title(f"keep {columns[0]}")
        panels[0].set_ylabel(units.named("test RMSE"))
        _legend_below(panels[0])
        if compared:
            ours, theirs = found["GCDE-GRU"], found["GCGRU"]
            gaps = enough(ours[2])
            margin = 100 * (1 - ours[0][gaps] / theirs[0][gaps])
            panels[1].bar(gaps, margin, color=COMPARED["GCDE-GRU"])
            panels[1].axhline(0, color="0.4", lw=0.8)
            panels[1].set_title("RMSE of GCDE-GRU against GCGRU's")
            panels[1].set_ylabel("lower by, %")
        for axes in panels:
            axes.set_xlabel(f"gap to the forecast, {units.intervals}")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return True


def by_time(folders: Folders, path: Path, units: Units) -> bool:
    """Error by the half-hour of the day, or by the interval, if that is longer."""
    columns = _columns(folders)
    columns = [columns[0], columns[-1]] if len(columns) > 1 else columns
    if not columns:
        return False
    with picture(path, len(columns), 3.8, 2.8) as panels:
        for axes, column in zip(panels, columns, strict=True):
            top = 0.0
            for line, folder in _lines(folders, column).items():
                mean, std, _ = rmse_by(folder, "day")
                # The average is far above the others in rush hours, and may leave the picture.
                top = max(top, 0 if line == "Historical average" else np.nanmax(mean))
                hours = (np.arange(len(mean)) + 0.5) * 24 / len(mean)
                axes.plot(hours, mean, label=line, color=COMPARED[line])
                axes.fill_between(
                    hours, mean - std, mean + std, color=COMPARED[line], alpha=0.15, lw=0
                )
            axes.set_title(f"keep {column}")
            axes.set_xlabel("time of day, hours")
            axes.set_xticks(range(0, 25, 6))
            axes.set_ylim(0, 1.3 * top or None)
        panels[0].set_ylabel(units.named("test RMSE"))
        _legend_below(panels[0])
    return True


def _legend_below(axes: Any) -> None:
    """One legend for all panels, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    axes.figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))


PICTURES: dict[str, Any] = {
    "gaps": gap_histograms,
    "training": training_curves,
    "forecasts": forecasts,
    "by-gap": by_gap,
    "by-time": by_time,
}
