"""A run of the multi-agent experiment from settings to result: systems, members, forecasts."""

import functools
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

from graphode.data import Particles, Trajectories, simulate
from graphode.ensembles import Ensemble
from graphode.experiments.devices import find_device
from graphode.experiments.multi_agent import MultiAgent
from graphode.experiments.one_step import OneStep, one_step
from graphode.experiments.particle_metrics import spread
from graphode.experiments.particle_models import BASELINES, CHANNELS, FLAT, baseline, builder
from graphode.experiments.particle_rollouts import Advance, errors, forecasts
from graphode.experiments.particle_transfer import learned_force, transferred
from graphode.experiments.progress import counted, display
from graphode.experiments.provenance import provenance
from graphode.experiments.recording import capture_on
from graphode.experiments.run_folder import RunFolder, settings_of
from graphode.experiments.sitting import sit
from graphode.experiments.trainer import Training
from graphode.experiments.training import Outcome, train
from graphode.flows import Flow

ADAM_TENSORS = 3  # a checkpoint holds every parameter and its two moments
ERRORS_SPACE = 1 << 20  # bytes, for those of all members and for learned forces
# With a message of 32 channels for each, 16 MB, which a CPU's allocator keeps for the next (four
# times as many are half as fast, measured), or a quarter of a GB.
PAIRS_AT_ONCE = {"cpu": 1 << 17, "cuda": 1 << 21}
EXAMPLE = (5, 50)  # the forecasts of the first member that pictures show, beside a free one


@functools.lru_cache(maxsize=8)
def simulated(system: Particles, seeds: tuple[int, ...]) -> Trajectories:
    """The systems of all members; models of one table share them."""
    return simulate(system, seeds)


def halves(states: Tensor) -> tuple[Tensor, Tensor]:
    """Training and test: the last state of the first is the first of the second."""
    middle = (states.shape[1] - 1) // 2
    return states[:, : middle + 1], states[:, middle:]


def run(config: MultiAgent, console: Console | None = None) -> dict[str, Any]:
    """Train the members, or go on, or read what was finished; prints and returns the result."""
    threads = torch.get_num_threads()
    # Tensors as small as these gain nothing from threads, which wait for each other.
    torch.set_num_threads(1)
    try:
        return sit(config, console, _made, line)
    finally:
        torch.set_num_threads(threads)


def _made(config: MultiAgent, folder: RunFolder, console: Console) -> None:
    device = find_device(config.device)
    size = 0
    if config.model not in BASELINES:
        size = sum(p.numel() * p.element_size() for p in builder(config)(0).parameters())
    # Paths of one member: five halves and a whole at most, in four bytes a number.
    paths = 4 * (config.system.num_steps + 2) * config.n * CHANNELS * 4
    folder.open(
        fresh=config.fresh,
        space=ADAM_TENSORS * size * config.members,
        lines=config.epochs if size else 0,
        arrays=paths + ERRORS_SPACE,
    )
    states = simulated(config.system, config.system_seeds).states
    train_half, test_half = halves(states.to(device))
    if config.model in BASELINES:
        outcome, advance = Outcome({}, 0.0, None), baseline(config.model, config.dt)
    else:
        objective = one_step(train_half, config.dt, config.stride, config.program, config.loss)
        outcome = _trained(config, folder, console, objective)
        advance = advance_of(outcome.ensemble)
    true = test_half.to(torch.get_default_dtype())
    found = forecasts(advance, true, config.horizons, oracle=config.oracle)
    measured = errors(found, true)
    arrays = {name: values.cpu().numpy() for name, values in measured.items()}
    arrays |= _examples(config, advance, true)
    if config.model in BASELINES:  # which have no other: the example that pictures show
        arrays["whole"] = _first(states)
    result = {
        "experiment": "multi-agent",
        "config": settings_of(config),
        **provenance(device),
        "system_seeds": list(config.system_seeds),
        "members": config.members,
        "parameters": size // torch.get_default_dtype().itemsize,
        "label": label(config),
        "horizons": list(config.horizons),
        "metrics": {
            name: [spread(column) for column in values.T] for name, values in measured.items()
        },
        "train_loss": outcome.selected.get("validation_loss"),
        "evaluations": evaluations(config),
        "diverged": outcome.diverged,
        "seconds": outcome.seconds,
    }
    if config.transfer:
        result["transfer"] = transferred(config, advance, simulated, true.dtype)
    if config.model == "pair_force":
        arrays |= learned_force(config, outcome.ensemble)
    folder.save_arrays(arrays)
    folder.finish(result)


def _trained(
    config: MultiAgent, folder: RunFolder, console: Console, objective: OneStep
) -> Outcome:
    device = objective.states.device
    build = builder(config)
    training = Training(
        epochs=config.epochs,
        lr=config.lr,
        schedule=config.schedule,
        log_every=config.log_every,
        checkpoint_seconds=config.checkpoint_seconds,
    )
    title = f"{config.model} of {config.n} particles, {counted(config.members, 'member')}"
    with display(console, title, config.epochs) as shown:
        return train(
            lambda seeds: Ensemble(build, seeds).to(device),
            objective,
            training,
            config.seeds,
            folder,
            shown,
            capture=capture_on(device),
        )


def advance_of(ensemble: nn.Module) -> Advance:
    """One step of every member's own states, as many at once as memory is for."""
    ensemble.eval()

    def advance(state: Tensor) -> Tensor:
        members, _, n, _ = state.shape
        pairs = PAIRS_AT_ONCE.get(state.device.type, PAIRS_AT_ONCE["cpu"])
        parts = state.split(max(1, pairs // (members * n**2)), 1)
        moved = [ensemble(part.contiguous(), None, per_member=True) for part in parts]
        return moved[0] if len(moved) == 1 else torch.cat(moved, 1)

    return advance


def _examples(config: MultiAgent, advance: Advance, true: Tensor) -> dict[str, np.ndarray]:
    """The test half of the first member: truth, forecasts with restarts, and without any."""
    horizons = (*(K for K in EXAMPLE if true.shape[1] > K), true.shape[1] - 1)
    found = forecasts(advance, true, horizons, oracle=config.oracle)
    arrays = {"true": _first(true)}
    for K, predicted in found.items():
        name = "free" if horizons[-1] == K else f"forecast_{K}"
        arrays[name] = _first(torch.cat([true[:, :1], predicted], 1))
    return arrays


def _first(states: Tensor) -> np.ndarray:
    return states[0, ..., :CHANNELS].float().cpu().numpy()


def evaluations(config: MultiAgent) -> float:
    """Of the field per step."""
    if config.model in ("static", *BASELINES):
        return 0.0
    flow = Flow(lambda t, h, graph: h, solver=config.solver, num_steps=config.num_steps)
    return float(flow.solve(torch.zeros(1, 1), None, [0.0, 1.0]).stats.evaluations)


def label(config: MultiAgent) -> str:
    """What a reader must know of the forecasts."""
    if config.model in (*FLAT, *BASELINES):
        return "A fed" if config.adjacency else ""
    return "oracle graph" if config.oracle else "graph of predicted positions"


def line(result: dict[str, Any]) -> str:
    """The result in a few words."""
    horizons, found = result["horizons"], result["metrics"]
    shown = []
    for k, K in enumerate(horizons):
        if K in (horizons[0], horizons[-1]):
            mape, rmse = found["mape"][k]["mean"], found["rmse"][k]["mean"]
            is_finite = None not in (mape, rmse)
            words = f"MAPE {mape:.3g} %, RMSE {rmse:.3g}" if is_finite else "errors are not finite"
            shown.append(f"K = {K}: {words}")
    name = result["config"]["model"] + (f" ({result['label']})" if result["label"] else "")
    members = counted(result["members"], "member")
    return f"{name}, {members}: {'; '.join(shown)}; {result['seconds']:.0f} s"
