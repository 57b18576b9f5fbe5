"""Particles: simulation and its convergence, cost against number, training against a rival.

    python benchmarks/particles.py --device cpu
    python benchmarks/particles.py --figure docs/figures/particles-scaling.png   from the result

*Simulation*: 10 systems × 2560 steps of the paper, every jump of the force located, and the largest
change of any state when the tolerance is halved and when the solver is another. *Scaling*: one step
(four evaluations, neighbours found anew) from 10 to 10 000 particles at equal density, and the
slope of its cost. *Training* and *rollout*: a step of one-step training (forward, loss, backward,
Adam) and a forecast of 50 steps, graphs rebuilt from the state, of GDE and Neural ODE for ten seeds
at once, against the same networks of `GCNConv` or `nn.Linear` in `torchdiffeq.odeint`, one seed at
a time; ratios are per seed: rival's time × 10 / our time. Ours as it is (eager), as a recorded list
of operations, and compiled. A training step has 30 states of each seed, a rollout one. The last
line is one JSON object.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import matplotlib
import numpy as np
import torch
from measure import Part, machine, script, side_by_side
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv
from torchdiffeq import odeint

from graphode.data import Particles, simulate
from graphode.data.particle_forces import NearPairs
from graphode.ensembles import Ensemble
from graphode.experiments.multi_agent import MultiAgent
from graphode.experiments.multi_agent_run import advance_of, halves
from graphode.experiments.one_step import one_step
from graphode.experiments.particle_models import builder
from graphode.experiments.recorded_loss import Program, record
from graphode.experiments.trainer import Trainer, Training
from graphode.flows import solve

matplotlib.use("Agg")
from matplotlib import pyplot as plt

RESULTS = Path(__file__).parents[1] / "results"
SEEDS, STEPS = 10, 50
STRIDE = 40  # every so manieth state of the training half: 30 states a step
NUMBERS = (10, 30, 100, 300, 1000, 3000, 10_000)


def simulation() -> dict[str, Any]:
    """Seconds for the ten systems of the paper, and how far they are converged."""
    simulate(Particles(duration=0.25))
    start = time.perf_counter()
    found = simulate(Particles(), range(10))
    seconds = time.perf_counter() - start
    finer = simulate(Particles(), range(10), tolerance=5e-13)
    other = simulate(Particles(), range(10), solver="tsit5", tolerance=1e-12)
    return {
        "systems": 10,
        "steps": found.system.num_steps,
        "seconds": seconds,
        "evaluations": found.evaluations,
        "crossings": found.crossings.tolist(),
        "change_by_half_the_tolerance": float((finer.states - found.states).abs().max()),
        "change_by_another_solver": float((other.states - found.states).abs().max()),
    }


def scaling() -> dict[str, Any]:
    """Milliseconds of one step against the number of particles, at equal density."""
    runs: dict[str, Callable[[], object]] = {}
    for n in NUMBERS:
        system = Particles().at_density(n)
        field, state = NearPairs(system), system.initial_states([0])[0]
        times = [0.0, system.dt / 8]

        def step(field: Any = field, state: Any = state, times: Any = times) -> object:
            return solve(field, state, times, solver="rk4", num_steps=1, dense=False)

        runs[str(n)] = step
    milliseconds = side_by_side(runs, "cpu", repeats=9)
    counts, cost = np.array(NUMBERS), np.array(list(milliseconds.values()))
    many = counts >= 1000
    slope = float(np.polyfit(np.log(counts[many]), np.log(cost[many]), 1)[0])
    return {"milliseconds_per_step": milliseconds, "slope_from_1000": slope}


def figure(path: Path) -> None:
    """Draw the scaling that the committed result holds."""
    found = json.loads((RESULTS / "particles-cpu.json").read_text())
    milliseconds, slope = found["scaling"].values()
    counts = np.array([int(count) for count in milliseconds])
    cost = np.array(list(milliseconds.values()))
    drawing, axes = plt.subplots(figsize=(5.4, 3.6), layout="constrained")
    axes.loglog(counts, cost, "o-", label=f"one step of rk4, slope {slope:.2f} from 1000 on")
    axes.loglog(counts, cost[-1] * counts / counts[-1], "k:", lw=1, label="in proportion")
    axes.set_ylim(bottom=cost.min() / 3)
    machine = found["machine"]
    title = f"one of {machine['cores']} cores of {machine['cpu']}"
    axes.set(xlabel="particles, equally dense", ylabel="milliseconds", title=title)
    axes.title.set_fontsize(10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=150)


class RivalGDE(nn.Module):
    """GCN 4-16-16-4 of PyG layers on the graph of the state, all systems as one large graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([GCNConv(4, 16), GCNConv(16, 16), GCNConv(16, 4)])

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        """The velocity, on edges between particles within reach."""
        batch, n, _ = h.shape
        near = torch.cdist(h[..., :2].detach(), h[..., :2].detach()) <= Particles().reach
        near &= ~torch.eye(n, dtype=torch.bool)
        system, target, source = near.nonzero(as_tuple=True)
        edge_index = torch.stack([source, target]) + system * n
        x = h.reshape(batch * n, -1)
        for index, layer in enumerate(self.layers):
            x = layer(functional.softplus(x) if index else x, edge_index)
        return x.reshape(h.shape)


class RivalNeuralODE(nn.Module):
    """40-80-80-40 on the flat state."""

    def __init__(self) -> None:
        super().__init__()
        widths = (40, 80, 80, 40)
        self.layers = nn.ModuleList(map(nn.Linear, widths[:-1], widths[1:]))

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        """The velocity."""
        x = h.flatten(1)
        for index, layer in enumerate(self.layers):
            x = layer(torch.tanh(x) if index else x)
        return x.reshape(h.shape)


RIVALS: dict[str, Callable[[], nn.Module]] = {"gde": RivalGDE, "neural_ode": RivalNeuralODE}


def _against(of: str) -> dict[str, Any]:
    """Milliseconds of training or rollout, ours for all seeds, and ratios per seed."""
    train, test = halves(simulate(Particles(), range(SEEDS)).states)
    found: dict[str, Any] = {}
    for model, make in RIVALS.items():
        config = MultiAgent.of(model, device="cpu", stride=STRIDE)
        starts = test[:, :1].float()
        if of == "training":
            runs = {program: _our_step(train, config, program) for program in get_args(Program)}
            runs["rival"] = _rival_step(make(), train[0], config)
        else:
            runs = {program: _our_rollout(starts, config, program) for program in get_args(Program)}
            runs["rival"] = _rival_rollout(make(), starts[0], config.dt)
        times = side_by_side(runs, "cpu", repeats=101 if of == "training" else 15)
        rival = times.pop("rival")
        found[model] = {
            "seeds": SEEDS,
            "milliseconds_all_seeds": times,
            "rival_milliseconds_one_seed": rival,
            "ratio_per_seed": {name: SEEDS * rival / ours for name, ours in times.items()},
        }
    return found


def _our_step(train: Tensor, config: MultiAgent, program: Program) -> Callable[[], object]:
    ensemble = Ensemble(builder(config), config.seeds)
    objective = one_step(train, config.dt, config.stride, program)
    return Trainer(ensemble, objective, Training(epochs=1, lr=0.01)).update


def _our_rollout(starts: Tensor, config: MultiAgent, program: Program) -> Callable[[], object]:
    advance = advance_of(Ensemble(builder(config), config.seeds).requires_grad_(False))
    if program != "eager":
        advance = record(advance, starts, compiled=program == "compiled")

    @torch.no_grad()
    def run() -> Tensor:
        state = starts
        for _ in range(STEPS):
            state = advance(state)
        return state

    return run


def _rival_step(field: nn.Module, train: Tensor, config: MultiAgent) -> Callable[[], object]:
    inputs = train[:-1].float()
    rates = ((train[1:] - train[:-1]) / config.dt).float()
    chosen = slice(0, None, config.stride)
    optimizer = torch.optim.Adam(field.parameters(), lr=0.01)
    times = torch.tensor([0.0, config.dt])

    def step() -> None:
        optimizer.zero_grad()
        x = inputs[chosen]
        moved = odeint(field, x, times, method="midpoint")[-1]
        ((moved - x) / config.dt - rates[chosen]).square().mean().backward()
        optimizer.step()

    return step


def _rival_rollout(field: nn.Module, starts: Tensor, dt: float) -> Callable[[], object]:
    times = torch.arange(STEPS + 1) * dt

    @torch.no_grad()
    def run() -> Tensor:
        return odeint(field, starts, times, method="midpoint")[-1]

    return run


PARTS: dict[str, Part] = {
    "simulation": lambda device: simulation(),
    "scaling": lambda device: scaling(),
    "training": lambda device: _against("training"),
    "rollout": lambda device: _against("rollout"),
}

if __name__ == "__main__":
    # Tensors as small as these gain nothing from threads, which wait for each other.
    torch.set_num_threads(1)
    if "--figure" in sys.argv:
        figure(Path(sys.argv[sys.argv.index("--figure") + 1]))
    else:
        # The simulator runs on a CPU, whatever the device.
        script(__doc__, "particles", {"machine": machine("cpu")}, PARTS, PARTS)
