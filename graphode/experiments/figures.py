"""The paper's pictures of node classification, and four of our own: one command.

    graphode reproduce figures --data-root DATA

    trajectories.png       embeddings of GCDE-dpr5 along depth, three data sets
    accuracy.png           test accuracy along training, ± 1 standard deviation
    integration-time.png   S ∈ {1, 5, 10}
    evaluations.png        cost of a solve along training, masks fixed and redrawn
    energy.png             Dirichlet energy along depth
    depth.png              GCN* with 2 to 6 layers

Runs that are not there are made, under the folder that the table's runs are in, and shared with
it. Pictures are drawn from the files of run folders only, so that they can be drawn again anywhere;
`figures.json` has the numbers of every run that was drawn.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from graphode.experiments import node_figures as draw
from graphode.experiments.checks import check_count
from graphode.experiments.node_classification import NodeClassification
from graphode.experiments.node_run import run as run_node_classification
from graphode.experiments.presets import Model, Preset
from graphode.experiments.run_folder import RESULT, read_json
from graphode.experiments.table_1 import COLUMNS, LINES, Table1, cell_config, present

Runs = dict[str, Path]  # by what a legend says
REDRAWN_SEEDS = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """Draw the paper's pictures of node classification.

    Args:
        seeds: Members of each run; 100 as in the paper, 2 with --quick.
        redrawn_seeds: Members of the run whose masks are redrawn, which is slow; by default 10, 2
            with --quick.
        quick: Few members and epochs: shows that all can be drawn, not what is reached.
        device: auto, cpu, cuda, cuda:1 …
        data_root: Folder of the data sets; else GRAPHODE_DATA, the user's cache, a download.
        only: Only these pictures: trajectories, accuracy, integration-time, evaluations, energy,
            depth.
        epochs: Another number of epochs than the paper's.
        runs: Folder of the runs; by default that of table 1.
        out: Folder of the pictures; by default runs/figures.
        fresh: Make every run anew.
    """

    seeds: int | None = None
    redrawn_seeds: int | None = None
    quick: bool = False
    device: str = "auto"
    data_root: Path | None = None
    only: tuple[str, ...] = ()
    epochs: int | None = None
    runs: Path | None = None
    out: Path | None = None
    fresh: bool = False

    def __post_init__(self) -> None:
        for name in ("seeds", "redrawn_seeds", "epochs"):
            check_count(name, getattr(self, name))
        for name in self.only:
            if name not in PICTURES:
                raise ValueError(f"Unknown picture {name!r}. Choose among: {', '.join(PICTURES)}.")


class Studio:
    """Makes the runs that pictures need, each once, and remembers where they are."""

    def __init__(self, config: Figures, console: Console) -> None:
        self.config, self.console = config, console
        ending = "-quick" if config.quick else ""
        self.runs = config.runs or Path(f"runs/table-1{ending}")
        self.out = config.out or Path(f"runs/figures{ending}")
        self.datasets, self.absent = present(tuple(COLUMNS), config.data_root)
        self.made: dict[str, Path] = {}

    @property
    def cora(self) -> str:
        """Cora with the public split, as the paper says, or else the one inside the package."""
        return "cora" if "cora" in self.datasets else "cora_linqs"

    @property
    def sets(self) -> list[str]:
        """Cora, and the other sets of the paper that are here."""
        return [self.cora, *(name for name in ("citeseer", "pubmed") if name in self.datasets)]

    def named(self, dataset: str) -> str:
        """A data set, as titles say it; those of --quick cannot be taken for the paper's."""
        return COLUMNS[dataset] + ("\nQUICK: few members and epochs" if self.config.quick else "")

    def cell(self, model: Model, dataset: str, preset: Preset = "printed") -> Path:
        """A run of the table."""
        line = next(line for line in LINES[preset] if line.model == model)
        return self._make(cell_config(self._table(preset), line, dataset, self.runs))

    def variant(self, model: Model, dataset: str, **changes: Any) -> Path:
        """A run that departs from the table's in some settings, which name its folder."""
        line = next(line for line in LINES["printed"] if line.model == model)
        line = dataclasses.replace(line, changes=changes)
        return self._make(cell_config(self._table("printed"), line, dataset, self.runs))

    def _table(self, preset: Preset) -> Table1:
        config, seeds = self.config, self.config.seeds
        if preset == "authors":
            seeds = config.redrawn_seeds or (None if config.quick else REDRAWN_SEEDS)
        return Table1(
            preset=preset,
            seeds=seeds,
            quick=config.quick,
            device=config.device,
            data_root=config.data_root,
            epochs=config.epochs,
            fresh=config.fresh,
        )

    def _make(self, run: NodeClassification) -> Path:
        assert run.out is not None
        if str(run.out) not in self.made:
            run_node_classification(run, self.console)
            self.made[str(run.out)] = run.out
        return run.out


def trajectories(studio: Studio) -> None:
    """Where a forward pass carries the nodes."""
    runs = {studio.named(name): studio.cell("gcde_dpr5", name) for name in studio.sets}
    draw.trajectories(runs, studio.out / "trajectories.png")


def accuracy(studio: Studio) -> None:
    """How fast each model learns."""
    models: dict[str, Model] = {
        "GCN*": "gcn_star",
        "GCDE-rk2, masks redrawn": "gcde_rk2",
        "GCDE-rk4, masks redrawn": "gcde_rk4",
        "GCDE-dpr5, masks fixed": "gcde_dpr5",
    }
    panels = {
        studio.named(name): {label: studio.cell(model, name) for label, model in models.items()}
        for name in studio.sets
    }
    draw.accuracies(panels, studio.out / "accuracy.png")


def integration_time(studio: Studio) -> None:
    """Longer intervals, at the paper's higher learning rate."""
    title = f"GCDE-dpr5, {studio.named(studio.cora)}"
    draw.accuracies({title: _spans(studio)}, studio.out / "integration-time.png")


def evaluations(studio: Studio) -> None:
    """What redrawing the masks costs."""
    runs = {
        "masks fixed per solve": studio.cell("gcde_dpr5", "cora_linqs"),
        "masks redrawn per evaluation": studio.cell("gcde_dpr5", "cora_linqs", "authors"),
    }
    title = f"GCDE-dpr5, {studio.named('cora_linqs')}"
    draw.evaluations(runs, title, studio.out / "evaluations.png")


def energy(studio: Studio) -> None:
    """Whether states grow alike along depth."""
    title = f"GCDE-dpr5, {studio.named(studio.cora)}"
    draw.energies(_spans(studio), title, studio.out / "energy.png")


def depth(studio: Studio) -> None:
    """More layers do not help the discrete model."""
    runs = {
        layers: studio.cell("gcn_star", studio.cora)
        if layers == 2
        else studio.variant("gcn_star", studio.cora, layers=layers)
        for layers in range(2, 7)
    }
    draw.depths(runs, studio.named(studio.cora), studio.out / "depth.png")


def _spans(studio: Studio) -> Runs:
    spans = (1.0, 5.0, 10.0)
    return {
        f"S = {span:g}": studio.variant("gcde_dpr5", studio.cora, t1=span, lr=1e-2)
        for span in spans
    }


PICTURES: dict[str, Callable[[Studio], None]] = {
    "trajectories": trajectories,
    "accuracy": accuracy,
    "integration-time": integration_time,
    "evaluations": evaluations,
    "energy": energy,
    "depth": depth,
}


def run(config: Figures, console: Console | None = None) -> Sequence[Path]:
    """Make what runs are missing, then the pictures; returns their paths."""
    console = console or Console()
    studio = Studio(config, console)
    for name, reason in studio.absent.items():
        console.print(f"{COLUMNS[name]} is left out: {reason}", markup=False, soft_wrap=True)
    studio.out.mkdir(parents=True, exist_ok=True)
    made = []
    for name in config.only or PICTURES:
        PICTURES[name](studio)
        made.append(studio.out / f"{name}.png")
        console.print(f"Picture: {made[-1]}", markup=False, soft_wrap=True)
    numbers = {"runs": [summary(folder) for folder in studio.made.values()]}
    (studio.out / "figures.json").write_text(json.dumps(numbers, indent=1) + "\n")
    return made


def summary(folder: Path) -> dict[str, Any]:
    """What a run has reached, in a few numbers."""
    result = read_json(folder / RESULT)
    accuracy = result["metrics"]["test_accuracy"]
    return {
        "run": folder.name,
        "members": result["members"],
        "epochs": result["config"]["epochs"],
        # Nothing where every member failed.
        "accuracy": {n: a if (a := accuracy[n]) is None else 100 * a for n in ("mean", "std")},
        "evaluations": result["evaluations"]["evaluations"],
        "seconds": result["seconds"],
        "device": result["device"],
        "torch": result["versions"]["torch"],
        "date": result["date"].split("T")[0],
    }
