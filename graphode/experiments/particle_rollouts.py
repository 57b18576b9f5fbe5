"""Forecasts of K steps, then the true state again, along a whole trajectory.

    ŷ(start + k) = Φᵏ(y(start)),    start ∈ {0, K, 2K, …},    k = 1 … K

Poli et al. (2019), multi-agent experiment. All K and all restarts of all members advance together:
the batch starts with every state from which any K restarts, and after step k keeps those that some
K > k still needs, so that the work is that of the longest rollout plus little.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from graphode.experiments.particle_metrics import METRICS, metrics

Advance = Callable[[Tensor], Tensor]


@torch.no_grad()
def forecasts(
    advance: Advance,
    true: Float[Tensor, "members time n channels"],
    horizons: Sequence[int],
    *,
    oracle: bool = False,
) -> dict[int, Float[Tensor, "members steps n channels"]]:
    """For each K the forecasts of `true[:, 1:]`, from the true state after every K-th.

    Args:
        advance: Moves `[members, batch, n, channels]` by one step.
        true: The trajectory, whose first state is the first start.
        horizons: The numbers K.
        oracle: Append the true positions to every state that is advanced.
    """
    last = true.shape[1] - 1
    check_horizons(horizons, last)
    found = {K: torch.empty_like(true[:, 1:]) for K in horizons}
    starts = torch.arange(last, device=true.device)
    state = true[:, :-1]
    for k in range(1, max(horizons) + 1):
        needed = torch.stack([starts % K == 0 for K in horizons if k <= K]).any(0)
        needed &= starts + k <= last
        starts, state = starts[needed], state[:, needed]
        if oracle:
            state = torch.cat([state, true[:, starts + k - 1, :, :2]], -1)
        state = advance(state)
        for K in horizons:
            if k <= K:
                here = starts % K == 0
                found[K][:, starts[here] + k - 1] = state[:, here]
    return found


def errors(
    found: dict[int, Tensor], true: Float[Tensor, "members time n channels"]
) -> dict[str, Float[Tensor, "members horizons"]]:
    """Each metric of each member at each K."""
    by_horizon = [metrics(predicted, true[:, 1:]) for predicted in found.values()]
    return {name: torch.stack([each[name] for each in by_horizon], -1) for name in METRICS}


def check_horizons(horizons: Sequence[int], steps: int) -> None:
    """Refuse K that no test trajectory is long enough for."""
    if not horizons or min(horizons) < 1:
        raise ValueError(
            f"`horizons` must be numbers of steps, 1 or more, but are {list(horizons)}. Use for "
            f"example 1 10 50."
        )
    if max(horizons) > steps:
        raise ValueError(
            f"`horizons` asks for {max(horizons)} steps, but the test half has {steps}. Choose "
            f"smaller ones, or simulate longer with --duration."
        )
