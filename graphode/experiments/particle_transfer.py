"""What a law learned on ten particles says of others, and the law itself.

A model whose field does not count its particles is tested, without retraining, on other initial
conditions, on twice and five times as many particles at equal density, and on as many in the
original box, which is denser. The learned force between two particles is compared with the true.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from graphode.data import Particles, Trajectories
from graphode.experiments.particle_metrics import spread
from graphode.experiments.particle_models import baseline
from graphode.experiments.particle_rollouts import Advance, errors, forecasts

if TYPE_CHECKING:
    from graphode.experiments.multi_agent import MultiAgent

FACTORS = (2, 5)
OTHER_SEEDS = 1000  # simulation seeds of systems that no member was trained on begin here
SYSTEMS = 3  # of each kind; members take turns
HORIZONS = (1, 10, 50)


def elsewhere(system: Particles) -> dict[str, Particles]:
    """The systems to transfer to, by name."""
    found = {f"{system.n} particles, other starts": system}
    for factor in FACTORS:
        n = factor * system.n
        found[f"{n} particles, equally dense"] = system.at_density(n)
        found[f"{n} particles, denser"] = dataclasses.replace(system, n=n)
    return found


def transferred(
    config: "MultiAgent",
    advance: Advance,
    simulated: Callable[[Particles, tuple[int, ...]], Trajectories],
    dtype: torch.dtype,
) -> dict[str, dict[str, Any]]:
    """RMSE and median APE at some K, of the model and of harmonic motion, for each system."""
    seeds = tuple(OTHER_SEEDS + k for k in range(min(SYSTEMS, config.members)))
    turns = torch.arange(config.members) % len(seeds)
    horizons = [K for K in config.horizons if K in HORIZONS] or config.horizons[-1:]
    harmonic = baseline("harmonic", config.dt)
    found = {}
    for name, system in elsewhere(config.system).items():
        states = simulated(system, seeds).states[turns]
        true = states[:, (states.shape[1] - 1) // 2 :].to(config.device, dtype)
        measured = {
            "model": errors(forecasts(advance, true, horizons, oracle=config.oracle), true),
            "harmonic": errors(forecasts(harmonic, true, horizons), true),
        }
        found[name] = {"horizons": horizons} | {
            who: {m: [spread(column) for column in values[m].T] for m in ("rmse", "median_ape")}
            for who, values in measured.items()
        }
    return found


@torch.no_grad()
def learned_force(config: "MultiAgent", ensemble: nn.Module) -> dict[str, np.ndarray]:
    """φ(d, 0) of every member beside the true force, and φ(d, ±½) for the drag.

    Shapes:
        - **force_learned:** `[members, rates, distances]`
    """
    distances = torch.linspace(0.02 * config.r, config.reach, 121, device=config.device)
    rates = torch.tensor([-0.5, 0.0, 0.5], device=config.device)
    by_rate, by_distance = torch.meshgrid(rates, distances, indexing="ij")
    grid = torch.stack([by_distance, by_rate], -1).to(torch.get_default_dtype())
    learned = []
    for index in range(config.members):
        member: Any = ensemble.member(index)  # pyright: ignore[reportCallIssue]
        learned.append(member.flow.field.inside.field.field.force(grid)[..., 0])
    true: Tensor = config.system.pair_force(grid[..., 0], grid[..., 1])
    return {
        "force_distances": distances.cpu().numpy(),
        "force_rates": rates.cpu().numpy(),
        "force_learned": torch.stack(learned).cpu().numpy(),
        "force_true": true.cpu().numpy(),
    }
