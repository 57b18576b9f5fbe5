"""Runs of the particle simulator that several tests share, and an independent solution."""

import functools
import itertools

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from graphode.data import Particles, Trajectories, simulate

TWO = Particles(n=2)


@functools.cache
def default_systems() -> Trajectories:
    """Three systems with the paper's parameters."""
    return simulate(Particles(), range(3))


def along_a_line(x: float, speed: float, aside: float = 0.0) -> Tensor:
    """Two particles at ±x on a line, approaching each other."""
    return torch.tensor([[[x, aside, -speed, 0.0], [-x, 0.0, speed, 0.0]]])


def scipy_states(system: Particles, start: np.ndarray) -> np.ndarray:
    """SciPy's DOP853 on the printed formulas, pair by pair, restarted at each crossing of r/2."""
    n, pairs = system.n, list(itertools.combinations(range(system.n), 2))
    sign = {"physical": 1, "printed": -1}[system.sign]

    def gap(flat: np.ndarray, i: int, j: int) -> float:
        z = flat.reshape(n, 4)
        return 2 * np.linalg.norm(z[i, :2] - z[j, :2]) - system.r

    def event(i: int, j: int, inside: bool):
        def function(t: float, flat: np.ndarray) -> float:
            return gap(flat, i, j)

        function.terminal, function.direction = True, 1 if inside else -1
        return function

    def field(t: float, flat: np.ndarray) -> np.ndarray:
        z = flat.reshape(n, 4)
        dz = np.concatenate([z[:, 2:], -z[:, :2]], 1)
        for i, j in inside:
            apart, moving = z[i, :2] - z[j, :2], z[i, 2:] - z[j, 2:]
            d = np.linalg.norm(apart)
            f = -(system.alpha * (d - system.r) + system.beta * (moving @ apart) / d) * apart / d
            dz[i, 2:] += sign * f
            dz[j, 2:] -= sign * f
        return dz.ravel()

    times, t, y = system.times.numpy(), 0.0, start.ravel()
    inside = {pair for pair in pairs if gap(y, *pair) <= 0}
    states = np.empty((len(times), n * 4))
    while t < times[-1]:
        events = [event(i, j, (i, j) in inside) for i, j in pairs]
        found = solve_ivp(
            field,
            (t, times[-1]),
            y,
            "DOP853",
            events=events,
            dense_output=True,
            rtol=1e-12,
            atol=1e-12,
            max_step=0.02,
        )
        reached = (times >= t) & (times <= found.t[-1])
        if reached.any():
            states[reached] = found.sol(times[reached]).T
        t, y = found.t[-1], found.y[:, -1]
        inside ^= {pair for pair, at in zip(pairs, found.t_events, strict=True) if len(at)}
    return states.reshape(-1, n, 4)
