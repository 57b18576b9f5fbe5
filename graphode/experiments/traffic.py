"""Traffic from irregular observations: one cell of the paper's table 2.

    graphode run traffic --dataset simulated
    graphode run traffic --dataset pems08 --model gcde_gru --keep 0.3 --data-root DATA

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", traffic forecasting. Timestamps
are kept with a probability, five samples of all sensors come in, the next one is forecast. Each
member has weights, a training mask and an order of batches of its own, by its seed; its epoch of
lowest validation loss is tested on the last part of the recording, undersampled anew 20 times.
"""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from graphode.data.store import file_sha256
from graphode.experiments.checks import check_count, check_rate
from graphode.experiments.devices import device_name
from graphode.experiments.flags import peek
from graphode.experiments.run_folder import NOT_IDENTITY
from graphode.experiments.traffic_normalization import Normalization
from graphode.experiments.traffic_presets import FLOWS, Model, Preset, Schedule, settings
from graphode.flows.methods import find_method, has_error_estimate

Dataset = Literal["pems08", "pemsd7m", "simulated", "file"]
Protocol = Literal["next_sample", "stgcn", "unseen_times"]
RUNS = Path("runs/traffic")
BASELINES = ("persistence", "historical_average")
# Seeds of the masks that members are tested on; seeds of members, and of their masks, are below.
FIRST_TEST_MASK = 1_000_000
# Settings of --dataset file alone.
OF_FILES = (
    "speeds", "distances", "key", "channel", "missing", "duplicates", "interval_minutes", "directed"
)  # fmt: skip


def unit_of(dataset: str, given: str | None = None) -> str | None:
    """The unit of the speeds; None where files do not say and nobody has."""
    return given or (None if dataset == "file" else "mph")


def steps_of(solver: str) -> int | None:
    """How many steps a solver takes from sample to sample if nobody says; None if it chooses."""
    return None if has_error_estimate(find_method(solver, rtol=1e-3, atol=1e-4)) else 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrafficForecast:
    """Train an ensemble on irregular traffic, by the settings of a preset or others.

    Args:
        model: A line of the table.
        dataset: pems08, pemsd7m, simulated, or file with --speeds and --distances.
        preset: Where settings that are not given come from: printed (the paper's text) or tuned.
        protocol: next_sample (the paper's: 5 samples in, the next one out), stgcn (12 in; 3, 6
            and 9 intervals out, such as 15, 30 and 45 minutes), or unseen_times (trained on every
            second timestamp, tested on those between).
        keep: Probability to keep a timestamp: 0.3, or all of one's own files and of stgcn.
        members: How many are trained; member k has the seed `seed` + k.
        seed: Of the first member: its weights, its training mask and its batches.
        masks: Undersampled versions of the test data; with keep 1 there is one.
        hidden: Width of the state.
        residual: Whether the change since the last observation is predicted.
        normalization: Speeds are seen as their distance from the mean of all (overall), of the
            sensor (per_sensor), or of the sensor at the time of day (usual).
        separate: Whether gates and field tell a sensor from its neighbourhood.
        time_unit: Intervals in a unit of the flow's time, and of the gaps that are seen.
        graph: Edges under a percentile of the distances, or with STGCN's Gaussian weights.
        percentile: Of the distances along the roads, under which there are edges; 100 joins all.
        targets: How many of the samples after a window training asks for. Only a flow can be
            asked for more than the next one. Of all protocols but stgcn, which asks for its own
            horizons whatever is given here.
        later: What an error at such a later sample counts, where one at the next counts 1.
        dropout: Share of what gates and field see that is dropped in training.
        lr: Adam's learning rate.
        weight_decay: L2 penalty.
        schedule: constant, cosine, or restarts: cosine annealing with warm restarts.
        period: Epochs between restarts.
        epochs: How many.
        batch_size: Windows of an update.
        solver: Of the flow; any of the library's.
        rtol: Relative tolerance of adaptive solvers.
        atol: Absolute tolerance.
        num_steps: Fixed steps from one sample to the next; with a --solver that is given, by
            default 1, or as many as an adaptive one chooses.
        gradient: backprop, checkpoint, adjoint or checkpoint_adjoint.
        churn: Share of the sensors that leave and come back in the churn test.
        sensors: Of simulated traffic.
        days: Of simulated traffic.
        speeds: Table of speeds of --dataset file: CSV, npz or parquet, time × sensors.
        distances: Its distances: CSV, a list (from, to, length) or a matrix.
        key: The array of that table, an npz that holds several.
        channel: Of an npz time × sensors × channels, the one of the speeds, from 0.
        missing: What to do with empty cells of that table: refuse or mask.
        duplicates: What to do with its rows of one time: refuse or mean.
        interval_minutes: The unit of its time; by default the median distance between rows, made
            a usual one.
        directed: Whether its distances may be longer one way than back.
        unit: Of its speeds, a word that stands beside errors, such as km/h.
        deterministic: Use deterministic kernels only.
        device: auto, cpu, cuda, cuda:1 …
        chunk: Members trained at once; None for as many as fit.
        capture: Record an update as a CUDA graph where solver and device allow it.
        log_every: Epochs between two looks at the device.
        checkpoint_seconds: Between two checkpoints, at least.
        data_root: Folder of the data sets; else GRAPHODE_DATA, the user's cache, a download.
        out: The run's folder; by default runs/traffic/MODEL-DATASET-KEEP.
        fresh: Throw away what an earlier run left in the folder.
    """

    model: Model
    dataset: Dataset
    preset: Preset = dataclasses.field(default="tuned", metadata=NOT_IDENTITY)
    protocol: Protocol = "next_sample"
    keep: float
    members: int = 1
    seed: int = 0
    masks: int = 20

    hidden: int
    residual: bool
    normalization: Normalization
    separate: bool
    time_unit: float
    graph: Literal["percentile", "gaussian"]
    percentile: float

    targets: int = 1
    later: float = 0.5
    dropout: float = 0.0
    lr: float
    weight_decay: float = 0.0
    schedule: Schedule
    period: int
    epochs: int
    batch_size: int

    solver: str
    rtol: float
    atol: float
    num_steps: int | None = None
    gradient: str = "backprop"

    churn: float = 0.1
    sensors: int = 20
    days: int = 10
    speeds: Path | None = None
    distances: Path | None = None
    key: str | None = None
    channel: int | None = None
    missing: Literal["refuse", "mask"] = "refuse"
    duplicates: Literal["refuse", "mean"] = "refuse"
    interval_minutes: float | None = None
    directed: bool = False
    unit: str | None = dataclasses.field(default=None, metadata=NOT_IDENTITY)

    deterministic: bool = False
    device: str = "auto"
    chunk: int | None = None
    capture: bool = dataclasses.field(default=True, metadata=NOT_IDENTITY)
    log_every: int = 1
    checkpoint_seconds: float = dataclasses.field(default=30.0, metadata=NOT_IDENTITY)
    data_root: Path | None = dataclasses.field(default=None, metadata=NOT_IDENTITY)
    out: Path | None = dataclasses.field(default=None, metadata=NOT_IDENTITY)
    fresh: bool = dataclasses.field(default=False, metadata=NOT_IDENTITY)

    @classmethod
    def of(
        cls,
        model: Model = "gcde_gru",
        dataset: Dataset = "simulated",
        preset: Preset = "tuned",
        **changes: Any,
    ) -> "TrafficForecast":
        """The settings of a preset, with changes."""
        whole = dataset == "file" or changes.get("protocol") == "stgcn"
        found = {"keep": 1.0 if whole else 0.3, **settings(preset, model)}
        if "solver" in changes:
            found["num_steps"] = steps_of(changes["solver"])
        return cls(**{"model": model, "dataset": dataset, "preset": preset, **found, **changes})

    @classmethod
    def defaults(cls, arguments: Sequence[str]) -> "TrafficForecast":
        """The settings that flags of a command line change: those of the preset it names."""
        words = ("model", "dataset", "preset", "protocol", "solver")
        named = peek(arguments, dict.fromkeys(words, str))
        if named.pop("dataset", None) == "file":  # which cannot be made without its files
            named["keep"] = 1.0
        return cls.of(**named)

    def __post_init__(self) -> None:
        counts = ("members", "masks", "hidden", "epochs", "batch_size", "period", "log_every")
        for name in (*counts, "targets"):
            check_count(name, getattr(self, name))
        check_count("chunk", self.chunk, "Leave it out to train as many members as fit")
        check_rate(self.lr)
        if self.targets > 1 and self.model not in FLOWS:
            raise ValueError(
                f"{self.model} holds its state, so that it has one answer for every time: "
                f"`targets` must be 1, but is {self.targets}. Only {', '.join(FLOWS)} can be asked "
                "for more."
            )
        if not 0 < self.keep <= 1:
            raise ValueError(
                f"`keep` must be a probability above 0 and at most 1, but is {self.keep}. 0.3 "
                "keeps about 30 % of the timestamps."
            )
        if self.protocol == "stgcn" and self.keep != 1:
            raise ValueError(
                f"STGCN's protocol sees every timestamp, so `keep` must be 1, but is {self.keep}. "
                "Leave it out, or use --protocol next_sample."
            )
        if not self.weight_decay >= 0:
            raise ValueError(f"`weight_decay` must be 0 or more, but is {self.weight_decay}.")
        if not self.later >= 0:
            raise ValueError(f"`later` must be 0 or more, but is {self.later}: it is a weight.")
        if not 0 <= self.dropout < 1:
            raise ValueError(
                f"`dropout` must be a share from 0 to below 1, but is {self.dropout}. 0.1 drops a "
                "tenth."
            )
        if not self.time_unit > 0:
            raise ValueError(f"`time_unit` must be positive, but is {self.time_unit}.")
        if not 0 <= self.churn < 1:
            raise ValueError(f"`churn` must be a share from 0 to below 1, but is {self.churn}.")
        if self.dataset == "file" and (self.speeds is None or self.distances is None):
            raise ValueError(
                "--dataset file needs --speeds, a table of speeds, and --distances, between its "
                "sensors: without distances there is no graph."
            )
        self._check_own()
        known = unit_of(self.dataset)
        if known is not None and self.unit not in (None, known):
            raise ValueError(
                f"`unit` names that of one's own files, but the data set is {self.dataset}, whose "
                f"speeds are in {known}. Leave out --unit {self.unit}: nothing is converted."
            )
        if not 0 <= self.seed <= FIRST_TEST_MASK - self.members:
            raise ValueError(
                f"Seeds must lie from 0 to {FIRST_TEST_MASK - 1}, but are {self.seed} to "
                f"{self.seed + self.members - 1}. From {FIRST_TEST_MASK} on they are for test data."
            )

    def _check_own(self) -> None:
        """Refuse settings of one's own files where another data set is asked for."""
        usual = {field.name: field.default for field in dataclasses.fields(self)}
        given = [name for name in OF_FILES if getattr(self, name) != usual[name]]
        if given and self.dataset != "file":
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ValueError(
                f"Settings of one's own files ({flags}) are given, but the data set is "
                f'{self.dataset}: add --dataset file (in Python `dataset="file"`), or leave them '
                "out."
            )

    @property
    def seeds(self) -> range:
        """One for each member."""
        return range(self.seed, self.seed + self.members)

    @property
    def num_masks(self) -> int:
        """Undersampled versions of the test data; where nothing is dropped all are the same."""
        return 1 if self.keep == 1 else self.masks

    def resolved(self) -> "TrafficForecast":
        """With a device, a folder, and a unit where it is known."""
        usual = settings(self.preset, self.model)
        tolerances = (self.rtol, self.atol) != (usual["rtol"], usual["atol"])
        # Collocation solves each of its fixed steps to its tolerances.
        if tolerances and self.num_steps is not None and self.solver != "collocation":
            raise ValueError(
                "--rtol and --atol are for a solver that chooses its own steps, but `num_steps` is "
                f"{self.num_steps} and the solver {self.solver}. Give --solver dopri5 without "
                "--num-steps, or leave out the tolerances."
            )
        name = f"{self.model}-{self.dataset}-{100 * self.keep:g}"
        name += "" if self.protocol == "next_sample" else f"-{self.protocol}"
        for path in self._own_files:
            if not path.is_file():
                raise ValueError(f"There is no file {path}. Name it with --speeds or --distances.")
        device, unit = device_name(self.device), unit_of(self.dataset, self.unit)
        return dataclasses.replace(self, device=device, out=self.out or RUNS / name, unit=unit)

    @functools.cached_property
    def files(self) -> dict[str, str]:
        """Checksums of one's own files: a folder holds the run of one recording."""
        return {str(path): file_sha256(path) for path in self._own_files}

    @property
    def _own_files(self) -> list[Path]:
        named = (self.speeds, self.distances) if self.dataset == "file" else ()
        return [path for path in named if path is not None]
