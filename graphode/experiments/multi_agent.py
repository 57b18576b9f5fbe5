"""Extrapolating a system of interacting particles: one line of the paper's table 3.

    graphode run multi-agent
    graphode run multi-agent --model pair_force --preset tuned --transfer

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", multi-agent trajectory
extrapolation. Each member has its own simulated system and its own initial weights. Trained on the
first half of a trajectory, one step ahead; tested on the second, K steps ahead.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from graphode.data import Particles
from graphode.data.particle_system import Sign
from graphode.experiments.checks import check_choice, check_count, check_rate
from graphode.experiments.devices import device_name
from graphode.experiments.flags import peek
from graphode.experiments.particle_models import BASELINES, FLAT, Model
from graphode.experiments.particle_rollouts import check_horizons
from graphode.experiments.recorded_loss import Program
from graphode.experiments.run_folder import NOT_IDENTITY

Preset = Literal["printed", "tuned"]
Schedule = Literal["constant", "cosine"]
Loss = Literal["squared", "absolute"]
RUNS = Path("runs/multi-agent")
HORIZONS = (1, 3, 5, 10, 15, 20, 50)

# The paper's text: widths, Adam, 0.01, constant. It is silent on epochs, batches and activations:
# tanh made the better MLPs, and softplus is what it uses in graph convolutions elsewhere.
PRINTED: dict[str, Any] = {
    "activation": "softplus",
    "hidden": 16,
    "lr": 0.01,
    "schedule": "constant",
    "loss": "squared",
    "epochs": 1500,
    "stride": 16,
}
# Ours: the rate falls to 0, and more is learned before.
TUNED: dict[str, Any] = {"lr": 0.02, "schedule": "cosine", "epochs": 3000}
FLAT_SETTINGS: dict[str, Any] = {"activation": "tanh", "hidden": 8, "stride": 8}
# Operators that the paper leaves open or does not have: in either preset the rate falls to 0, and
# the loss is the absolute error.
OURS: dict[str, Any] = {"activation": "tanh", "schedule": "cosine", "loss": "absolute"}
# All pairs of particles go through these two, ten times as many rows as particles.
MESSAGES: dict[str, Any] = {**OURS, "hidden": 32, "stride": 40}
# fmt: off
OF_MODEL: dict[str, dict[str, Any]] = {
    "static":         FLAT_SETTINGS,
    "neural_ode":     FLAT_SETTINGS,
    "gde_ii":         OURS,
    "gde_ii_latent":  {"hidden": 32},
    "gde_ii_literal": {"hidden": 32},
    "gmde_ii":        MESSAGES,
    "pair_force":     MESSAGES,
    "persistence":    {"epochs": 0},
    "harmonic":       {"epochs": 0},
}
# fmt: on


def settings(preset: str, model: str) -> dict[str, Any]:
    """All settings of a model that depend on the preset."""
    check_choice("preset", preset, get_args(Preset))
    check_choice("model", model, get_args(Model))
    found = {**PRINTED, **OF_MODEL.get(model, {})}
    return {**found, **TUNED} if preset == "tuned" and model not in BASELINES else found


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiAgent:
    """Train an ensemble on simulated particles, by the settings of a preset or others.

    Args:
        model: A line of the table.
        preset: Where settings that are not given come from: printed (the paper's text where it has
            one; gde_ii and the models it lacks are trained as we do) or tuned (ours).
        members: How many are trained; member k has the weights of seed `seed` + k and the system
            of seed `system_seed` + k.
        seed: Of the first member's initial weights.
        system_seed: Of the first member's initial conditions.
        n: Particles.
        r: They interact within r/2.
        alpha: Stiffness of their springs.
        beta: Drag.
        duration: Of the simulation, half of it for training.
        dt: Time between two states.
        sign: physical, or the paper's formula to the letter, whose energy grows.
        hidden: Width between layers; of static and neural_ode, per particle.
        activation: Between layers.
        adjacency: Feed A to static or neural_ode.
        solver: Any of the library's.
        num_steps: Of the solver, over one `dt`.
        lr: Adam's learning rate.
        schedule: constant, or cosine: falling to 0.
        loss: Of one step: squared, or absolute, which lets particles that are alone be learned
            exactly whatever is missed of those that meet.
        epochs: Steps of Adam.
        stride: An epoch sees one state of so many, another set each time; neighbours in time
            are nearly the same.
        horizons: The numbers of steps K to extrapolate.
        oracle: Give the true graph to the forecasts, rather than that of predicted positions.
        transfer: Test also on other systems: other starts, more particles, denser ones.
        program: On a CPU, how loss and gradients are computed: eager, recorded once and repeated,
            or compiled, which needs a C++ compiler. The numbers are the same, to rounding.
        device: auto, cpu, cuda, cuda:1 …
        log_every: Epochs between two looks at the device.
        checkpoint_seconds: Between two checkpoints, at least.
        out: The run's folder; by default runs/multi-agent/MODEL.
        fresh: Throw away what an earlier run left in the folder.
    """

    model: Model
    preset: Preset = dataclasses.field(default="printed", metadata=NOT_IDENTITY)
    members: int = 10
    seed: int = 0
    system_seed: int = 0

    n: int = 10
    r: float = 1.0
    alpha: float = 1.0
    beta: float = 0.1
    duration: float = 5.0
    dt: float = 1 / 512
    sign: Sign = "physical"

    hidden: int
    activation: str
    adjacency: bool = False
    solver: str = "midpoint"  # over 1/512 its error is 1e-9, below anything that is learned
    num_steps: int = 1

    lr: float
    schedule: Schedule
    loss: Loss
    epochs: int
    stride: int

    horizons: tuple[int, ...] = HORIZONS
    oracle: bool = False
    transfer: bool = False

    program: Program = dataclasses.field(default="recorded", metadata=NOT_IDENTITY)
    device: str = "auto"
    log_every: int = 10
    checkpoint_seconds: float = dataclasses.field(default=30.0, metadata=NOT_IDENTITY)
    out: Path | None = dataclasses.field(default=None, metadata=NOT_IDENTITY)
    fresh: bool = dataclasses.field(default=False, metadata=NOT_IDENTITY)

    @classmethod
    def of(
        cls, model: Model = "gde_ii", preset: Preset = "printed", **changes: Any
    ) -> "MultiAgent":
        """The settings of a preset, with changes.

        Where a trajectory is short, the stride is smaller and horizons are those that fit.
        """
        found = settings(preset, model)
        duration, dt = changes.get("duration", cls.duration), changes.get("dt", cls.dt)
        if dt > 0 and duration > dt:
            steps = int(duration / dt) // 2
            found["stride"] = max(1, min(found["stride"], steps // 2))
            found["horizons"] = tuple(K for K in HORIZONS if steps >= K) or (1,)
        return cls(**{"model": model, "preset": preset, **found, **changes})

    @classmethod
    def defaults(cls, arguments: Sequence[str]) -> "MultiAgent":
        """The settings that flags of a command line change: those of the preset it names."""
        kinds = {"model": str, "preset": str, "duration": float, "dt": float}
        return cls.of(**peek(arguments, kinds))

    def __post_init__(self) -> None:
        for name in ("members", "hidden", "num_steps", "stride", "log_every"):
            check_count(name, getattr(self, name))
        if self.model not in BASELINES:
            check_count("epochs", self.epochs)
        check_rate(self.lr)
        if self.adjacency and self.model not in FLAT:
            raise ValueError(
                f"`adjacency` is fed to {' and '.join(FLAT)}, but the model is {self.model}, "
                f"which {'learns nothing' if self.model in BASELINES else 'has it anyway'}."
            )
        if self.oracle and self.model in (*FLAT, *BASELINES):
            raise ValueError(
                f"`oracle` gives the true graph to forecasts, but {self.model} uses none. Choose "
                f"a model on graphs, such as gde_ii."
            )
        if self.transfer and self.model in FLAT:
            raise ValueError(
                f"{self.model} sees {self.n} particles as one vector of {4 * self.n} numbers and "
                f"cannot be given another number of them. Leave out --transfer, or choose a model "
                f"on graphs, such as gde_ii."
            )
        steps = self.system.num_steps // 2
        if steps < 2 * self.stride and self.model not in BASELINES:
            raise ValueError(
                f"`stride` must leave two states of the training half or more, which has {steps}, "
                f"but is {self.stride}. Lower it, or simulate longer with --duration."
            )
        check_horizons(self.horizons, self.system.num_steps - steps)

    @property
    def system(self) -> Particles:
        """The law; checks its parameters."""
        return Particles(
            n=self.n,
            r=self.r,
            alpha=self.alpha,
            beta=self.beta,
            duration=self.duration,
            dt=self.dt,
            sign=self.sign,
        )

    @property
    def reach(self) -> float:
        """Within which particles interact."""
        return self.r / 2

    @property
    def system_seeds(self) -> tuple[int, ...]:
        """Of the members' initial conditions."""
        return tuple(range(self.system_seed, self.system_seed + self.members))

    @property
    def seeds(self) -> range:
        """Of the members' weights."""
        return range(self.seed, self.seed + self.members)

    def resolved(self) -> "MultiAgent":
        """With a device and a folder."""
        out = self.out or RUNS / self.model
        return dataclasses.replace(self, device=device_name(self.device), out=out)
