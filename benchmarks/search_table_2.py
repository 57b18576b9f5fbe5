"""The search behind preset `tuned` of table 2: traffic models, by validation data alone.

    python benchmarks/search_table_2.py --model gcde_gru --device cuda --data-root DATA
    python benchmarks/search_table_2.py --model gcde_gru --only targets --device cuda
    python benchmarks/search_table_2.py --model gcde_gru --only dropout --keep 0.3 0.5 --device cuda

One choice after the other: every alternative is tried with all other choices at their best so far,
and stays if the validation error is lower. The last part of the recording, which table 2 is tested
on, is cut off before anything is trained, and the members' seeds are not those of the table. Every
model is searched in the same way. `--only` looks at some choices with all others as the preset has
them. With several `--keep` it is the mean of their validation errors that decides. The preset is
what was found at keep 30 %, and for the last two choices, which are against overfitting, at 30 and
50 %. What was tried is in the file; the same command goes on from there.
"""

import argparse
import dataclasses
import json
import statistics
import time
from pathlib import Path
from typing import Any, get_args

import torch

from graphode.data import TrafficSeries
from graphode.ensembles import Ensemble
from graphode.experiments.recording import capture_on, runner
from graphode.experiments.traffic import TrafficForecast
from graphode.experiments.traffic_data import graph_of, load_series, num_outputs
from graphode.experiments.traffic_models import builder
from graphode.experiments.traffic_normalization import SMOOTHED_HOURS
from graphode.experiments.traffic_objective import TrafficTask
from graphode.experiments.traffic_presets import FLOWS, Model
from graphode.experiments.trainer import Trainer, Training

FIRST_SEED = 1000
Settings = dict[str, Any]
Row = dict[str, Any]

# In the order in which they are chosen.
CHOICES: dict[str, tuple[Any, ...]] = {
    "lr": (3e-3, 1e-3, 1e-2),
    "normalization": ("usual", "per_sensor"),
    "separate": (True, False),
    "percentile": (3.0, 1.0, 10.0),
    "hidden": (46, 64),
    "weight_decay": (0.0, 1e-5, 1e-4),
    "time_unit": (12.0, 3.0),
    "num_steps": (1, 2),
    "targets": (1, 2, 3),
    "later": (0.5, 0.2),
    "dropout": (0.0, 0.1, 0.2),
}
ONLY_WITH_A_FLOW = ("time_unit", "num_steps", "targets", "later")
ONLY_WITH_A_GRAPH = ("separate", "percentile")


def choices_of(model: Model) -> dict[str, tuple[Any, ...]]:
    """Those that make a difference to a model."""
    without = () if model in FLOWS else ONLY_WITH_A_FLOW
    without += ONLY_WITH_A_GRAPH if model == "gru" else ()
    return {name: values for name, values in CHOICES.items() if name not in without}


def without_test(series: TrafficSeries) -> TrafficSeries:
    """The recording up to where the test begins; the split keeps its training and validation."""
    end = series.split.test.start
    cut = {
        name: getattr(series, name)[:end]
        for name in ("speeds", "times", "observed", "stretches")
        if getattr(series, name) is not None
    }
    split = dataclasses.replace(series.split, test=range(end, end))
    return dataclasses.replace(series, **cut, split=split)


def train(config: TrafficForecast, series: TrafficSeries) -> dict[str, list[float]]:
    """Of each member its selected epoch, and the validation error there."""
    device = torch.device(config.device)
    graph = graph_of(series, config).normalize("sym").to(device, torch.get_default_dtype())
    task = TrafficTask(series, config, graph, device).for_members(config.seeds)
    build = builder(config, series.num_sensors, num_outputs(config))
    training = Training(
        epochs=config.epochs,
        lr=config.lr,
        weight_decay=config.weight_decay,
        schedule=config.schedule,
        period=config.period,
    )
    trainer = Trainer(Ensemble(build, config.seeds).to(device), task, training)
    run = runner(trainer, capture_on(device))
    run(config.epochs)
    found = {name: kept.tolist() for name, kept in trainer.selection.metrics.items()}
    return {"epoch": trainer.selection.epoch.tolist(), **found}


class Search:
    """Trials of one model, in a file with those of others."""

    def __init__(self, model: Model, args: argparse.Namespace) -> None:
        self.model, self.args = model, args
        self.file: Path = args.out
        self.preset = TrafficForecast.of(model, args.dataset, data_root=args.data_root)
        self.series = without_test(load_series(self.preset))
        self.rows: list[Row] = json.loads(self.file.read_text()) if self.file.exists() else []

    def run(self) -> list[Row]:
        """The best settings: a trial at each keep."""
        choices = choices_of(self.model)
        start = {name: values[0] for name, values in choices.items()}
        if self.args.only:
            start = {name: getattr(self.preset, name) for name in choices}
        best = self.tried(start)
        for name in self.args.only or choices:
            settings = best[0]["settings"]
            rest = [value for value in choices[name] if value != settings[name]]
            others = [self.tried({**settings, name: value}) for value in rest]
            best = min([best, *others], key=error)
        return best

    def tried(self, settings: Settings) -> list[Row]:
        """The trials of some settings, one at each keep."""
        return [self._tried(settings, keep) for keep in self.args.keep]

    def _tried(self, settings: Settings, keep: float) -> Row:
        """A trial, made or found in the file."""
        args = self.args
        key = {
            "dataset": args.dataset,
            "model": self.model,
            "keep": keep,
            "epochs": args.epochs,
            "seeds": list(range(FIRST_SEED, FIRST_SEED + args.members)),
            "smoothed_hours": SMOOTHED_HOURS,  # older trials have another usual speed
            "settings": settings,
        }
        for row in self.rows:
            if {**row, "settings": self._whole(row["settings"])}.items() >= key.items():
                return {**row, "settings": settings}
        config = TrafficForecast.of(
            self.model,
            args.dataset,
            **settings,
            keep=keep,
            epochs=args.epochs,
            members=args.members,
            seed=FIRST_SEED,
            device=args.device,
        )
        began = time.perf_counter()
        row = {**key, **train(config, self.series)}
        row["seconds"] = round(time.perf_counter() - began, 1)
        self.rows.append(row)
        self.file.write_text(json.dumps(self.rows, indent=1) + "\n")
        print(_line(row), flush=True)
        return row

    def _whole(self, settings: Settings) -> Settings:
        """With choices younger than a trial, which had there what is now the first."""
        return {name: values[0] for name, values in choices_of(self.model).items()} | settings


def error(rows: list[Row]) -> float:
    """Mean over keeps and members; a member that failed counts as the worst."""
    found = (e for row in rows for e in row["validation_rmse"])
    return statistics.fmean(float("inf") if e != e else e for e in found)


def _line(row: Row) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in row["settings"].items())
    what = f"{row['model']}, keep {100 * row['keep']:.0f} %"
    return f"{what}: validation RMSE {error([row]):.4f}, {row['seconds']:.0f} s; {settings}"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", nargs="+", default=["gru", "gcgru", "gcde_gru"])
    parser.add_argument("--only", nargs="+", default=[], choices=list(CHOICES))
    parser.add_argument("--keep", type=float, nargs="+", default=[0.3])
    parser.add_argument("--dataset", default="pems08")
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path("results/table-2-search.json"))
    args = parser.parse_args()
    for model in args.model:
        if model not in get_args(Model):
            parser.error(f"no model {model!r}: choose of {', '.join(get_args(Model))}")
        if strange := set(args.only) - set(choices_of(model)):
            parser.error(f"{', '.join(strange)} makes no difference to {model}")
    for model in args.model:
        for row in Search(model, args).run():
            print(f"best: {_line(row)}")


if __name__ == "__main__":
    main()
