"""Node classification on citation graphs: one cell of the paper's table 1.

    graphode run node-classification
    graphode run node-classification --model gcde_dpr5 --dataset pubmed --data-root DATA

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", transductive node
classification. Encoder, flow, readout; cross-entropy of the labelled nodes; of each member the
epoch of lowest validation loss counts. Test labels are measured, and decide nothing.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from graphode.experiments.checks import check_count, check_not_negative, check_rate
from graphode.experiments.devices import device_name
from graphode.experiments.flags import peek
from graphode.experiments.presets import ONLY_OF, Model, Preset, settings
from graphode.experiments.run_folder import NOT_IDENTITY
from graphode.flows.stochastic import Redraw

Decay = Literal["all", "first_layer"]
RUNS = Path("runs/node-classification")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeClassification:
    """Train an ensemble on a citation graph, by the settings of a preset or others.

    Args:
        model: A line of the table.
        dataset: cora_linqs (part of the package), cora, citeseer, pubmed, or another node set.
        preset: Where settings that are not given come from: printed (the paper's text), authors
            (their code) or tuned (ours, of the model diffusion).
        members: How many are trained; member k has the seed `seed` + k.
        seed: Of the first member: its weights and its masks.
        hidden: Width of the state; of diffusion, whose state are the classes, of hidden layers.
        layers: Of the field; of gcn and gcn_star all layers; of gcnii weights along its depth; of
            diffusion the layers before it.
        input_dropout: Share of the features dropped in training.
        field_dropout: Share of each field layer's input.
        readout_dropout: Share of the last layer's input; of diffusion, of all but the first.
        node_dropout: Of diffusion: share of the nodes that are silent when the flow begins.
        redraw: When the field's masks are drawn: per_solve, per_step or per_eval.
        force: Allow per_eval under adaptive solvers.
        alpha: Of gcnii and diffusion: the share of the first state in what each evaluation sees.
        mixing: Of gcnii: λ, how much the field's weight counts.
        depth_terms: Of gcnii: terms in which its weights change smoothly with depth; 0 for none.
        lr: Adam's learning rate.
        weight_decay: L2 penalty.
        field_decay: L2 penalty on the field's parameters; None for the same as on the others.
        decay: Penalise all parameters, or those of the first layer.
        epochs: How many.
        select_from: First epoch that can be selected; the last is epochs − 1. Earlier ones are
            evaluated once in `log_every`.
        patience: Epochs without improvement after which a member stops; None for never.
        solver: Any of the library's.
        rtol: Relative tolerance of adaptive solvers.
        atol: Absolute tolerance.
        control: How adaptive solvers choose their steps: ours, or as torchdiffeq does.
        num_steps: Of fixed-step solvers; None for one.
        gradient: backprop, checkpoint, adjoint or checkpoint_adjoint.
        t1: End of the integration interval [0, t1].
        deterministic: Use deterministic kernels only.
        device: auto, cpu, cuda, cuda:1 …
        chunk: Members trained at once; None for as many as fit.
        log_every: Epochs between two looks at the device.
        checkpoint_seconds: Between two checkpoints, at least.
        trajectories: Members whose embeddings are followed through the flow at the end, of those
            that were trained at once with the last.
        data_root: Folder of the data sets; else GRAPHODE_DATA, the user's cache, a download.
        out: The run's folder; by default runs/node-classification/MODEL-DATASET.
        fresh: Throw away what an earlier run left in the folder.
    """

    model: Model
    dataset: str
    preset: Preset = dataclasses.field(default="printed", metadata=NOT_IDENTITY)
    members: int = 3
    seed: int = 0

    hidden: int
    layers: int
    input_dropout: float
    field_dropout: float
    readout_dropout: float
    node_dropout: float = 0.0
    redraw: Redraw
    force: bool
    alpha: float = 0.1
    mixing: float = 0.5
    depth_terms: int = 0

    lr: float
    weight_decay: float
    field_decay: float | None = None
    decay: Decay
    epochs: int
    select_from: int
    patience: int | None = None

    solver: str
    rtol: float
    atol: float
    control: Literal["ours", "torchdiffeq"] = "ours"
    num_steps: int | None = None
    gradient: str = "backprop"
    t1: float

    deterministic: bool = False
    device: str = "auto"
    chunk: int | None = None
    log_every: int = 10
    checkpoint_seconds: float = dataclasses.field(default=30.0, metadata=NOT_IDENTITY)
    trajectories: int = dataclasses.field(default=5, metadata=NOT_IDENTITY)
    data_root: Path | None = dataclasses.field(default=None, metadata=NOT_IDENTITY)
    out: Path | None = dataclasses.field(default=None, metadata=NOT_IDENTITY)
    fresh: bool = dataclasses.field(default=False, metadata=NOT_IDENTITY)

    @classmethod
    def of(
        cls,
        model: Model | None = None,
        dataset: str = "cora_linqs",
        preset: Preset = "printed",
        **changes: Any,
    ) -> "NodeClassification":
        """The settings of a preset, with changes; with other `epochs`, selection moves along."""
        if model is None:
            model = "diffusion" if preset == "tuned" else "gcde_rk4"
        found = settings(preset, model, dataset)
        if "epochs" in changes:  # the same share of another number of epochs
            found["select_from"] = found["select_from"] * changes["epochs"] // found["epochs"]
        return cls(**{"model": model, "dataset": dataset, "preset": preset, **found, **changes})

    @classmethod
    def defaults(cls, arguments: Sequence[str]) -> "NodeClassification":
        """The settings that flags of a command line change: those of the preset it names."""
        kinds = {"model": str, "preset": str, "dataset": str, "epochs": int}
        return cls.of(**peek(arguments, kinds))

    def __post_init__(self) -> None:
        for name in ("members", "hidden", "layers", "epochs", "log_every"):
            check_count(name, getattr(self, name))
        check_count("patience", self.patience, "Leave it out to train every epoch")
        check_count("chunk", self.chunk, "Leave it out to train as many members as fit")
        check_rate(self.lr)
        for name in ("weight_decay", "field_decay"):
            check_not_negative(name, getattr(self, name), "Use 0 for no penalty.")
        check_not_negative("checkpoint_seconds", self.checkpoint_seconds, "Use for example 30.")
        check_not_negative("trajectories", self.trajectories, "Use 0 for none.")
        for name in ("rtol", "atol"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(
                    f"`{name}` must be a number above 0, but is {getattr(self, name)}. Use for "
                    f"example 1e-3."
                )
        if not math.isfinite(self.t1) or self.t1 == 0:
            raise ValueError(
                f"`t1` is where the interval that begins at 0 ends, but is {self.t1}. Use for "
                f"example 1."
            )
        if not -(2**63) <= self.seed <= 2**63 - self.members:
            raise ValueError(
                f"`seed` and those of the members after it must fit into 64 bits, but is "
                f"{self.seed}. Use for example 0."
            )
        if not 0 <= self.select_from < self.epochs:
            raise ValueError(
                f"`select_from` must be one of the epochs, 0 to {self.epochs - 1}, but is "
                f"{self.select_from}. Choose for example {self.epochs // 2}, the second half."
            )
        self._check_effects()
        if self.model == "diffusion" and (self.field_dropout or self.redraw != "per_solve"):
            raise ValueError(
                f"The field of diffusion drops nothing, but `field_dropout` is "
                f"{self.field_dropout} and `redraw` {self.redraw!r}. Leave them out; what drops is "
                f"--input-dropout, --readout-dropout and --node-dropout."
            )

    def _check_effects(self) -> None:
        """Refuse settings that the model does not have."""
        own = {field.name: field.default for field in dataclasses.fields(self)}
        own |= settings(self.preset, self.model, self.dataset)
        for name, models in ONLY_OF.items():
            if self.model not in models and getattr(self, name) != own[name]:
                raise ValueError(
                    f"`{name}` is a setting of {', '.join(models)} and has no effect on "
                    f"{self.model}, but is {getattr(self, name)}. Leave it out, or use another "
                    f"--model."
                )
        if self.decay == "first_layer" and self.field_decay is not None:
            raise ValueError(
                f"`field_decay` has no effect where only the first layer is penalised, but is "
                f"{self.field_decay}. Leave it out, or use --decay all."
            )

    @property
    def decays(self) -> float | dict[str, float]:
        """The L2 penalty, or those of parts by their names in an ensemble."""
        if self.decay == "first_layer":
            return {".encoder.": self.weight_decay}
        if self.field_decay is None:
            return self.weight_decay
        return {".flow.": self.field_decay, "": self.weight_decay}

    def resolved(self) -> "NodeClassification":
        """With a device and a folder."""
        out = self.out or RUNS / f"{self.model}-{self.dataset}"
        return dataclasses.replace(self, device=device_name(self.device), out=out)
