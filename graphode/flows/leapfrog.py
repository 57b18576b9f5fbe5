"""Leapfrog (velocity Verlet), symplectic and reversible, order 2.

    v½ = v + dt/2 a(t, x),   x⁺ = x + dt v½,   v⁺ = v½ + dt/2 a(t⁺, x⁺)

Hairer, Lubich, Wanner (2003), "Geometric numerical integration illustrated by the
Störmer–Verlet method". The state holds (x, v), position in the first half of the last dimension
and velocity in the second, and the field returns (v, a) in the same order.
"""

import torch
from torch import Tensor

from graphode.flows.evaluation import Evaluation
from graphode.flows.layout import Time
from graphode.flows.masks import is_recorded, is_traced
from graphode.flows.method import Carry, Method, Step


class Leapfrog(Method):
    """For x″ = a(t, x): an acceleration that depends on the velocity costs it its order."""

    order = 2

    def start(self, f: Evaluation, t: Time, y: Tensor) -> Carry:
        """The first derivative, after checking that the field has the form (v, a)."""
        if y.ndim == 0 or y.shape[-1] % 2:
            raise ValueError(
                f"Solver 'leapfrog' needs a state (position, velocity) with an even last "
                f"dimension, but the state has shape {tuple(y.shape)}. Concatenate positions and "
                f"velocities along the last dimension."
            )
        derivative = f(t, y)
        if not is_traced() and not is_recorded(y.device):
            velocity, rate = y.chunk(2, -1)[1], derivative.chunk(2, -1)[0]
            if not torch.equal(velocity, rate):
                gap = (velocity - rate).abs().max().item()
                raise ValueError(
                    f"Solver 'leapfrog' needs a field that returns (velocity, acceleration), but "
                    f"the first half of its value differs from the state's velocity by up to "
                    f"{gap:.3g}. Use a Runge–Kutta solver for a general first-order field."
                )
        return (derivative,)

    def step(self, f: Evaluation, t: Time, y: Tensor, dt: Time, carry: Carry) -> Step:
        """Kick, drift, kick."""
        scale = f.layout.scale(dt)
        position, velocity = y.chunk(2, -1)
        first = f.at_start(t, y, carry[0])
        acceleration = first.chunk(2, -1)[1]
        half_velocity = velocity + 0.5 * scale * acceleration
        new_position = position + scale * half_velocity
        half_way = f(t + dt, torch.cat([new_position, half_velocity], -1))
        new_acceleration = half_way.chunk(2, -1)[1]
        new_velocity = half_velocity + 0.5 * scale * new_acceleration
        derivative = torch.cat([new_velocity, new_acceleration], -1)
        y1 = torch.cat([new_position, new_velocity], -1)
        return Step(t, dt, y, y1, (first,), (derivative,), end=derivative)
