"""The right-hand side of the particle system, [x, x′]′ = [x′, x″], over all pairs or near ones.

Few particles: all pairs at once, for many systems together, with the set of interacting pairs as an
argument, so that between two crossings of r/2 the field is smooth. Many: the near pairs, found anew
at every evaluation.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from graphode.data.neighbours import close_pairs
from graphode.data.particle_system import Particles

# Closer than this part of r, the direction between two particles is noise.
COINCIDENT = 1e-7


class CoincidentParticlesError(ValueError):
    """Two particles in one place, where the direction of their force is undefined."""

    def __init__(self, system: int, i: int, j: int, when: str) -> None:
        super().__init__(
            f"Particles {i} and {j} of system {system} are in the same place {when}, where "
            f"n_ij = (x_i − x_j) / ‖x_i − x_j‖, the direction of their force, is undefined. "
            f"Start them apart, and not on a head-on course fast enough to meet."
        )


class AllPairs:
    """The field of many small systems, `[systems, n, 4]`, for a given set of interacting pairs.

    A pair is one of i < j, counted row by row. Forces are applied to both its particles at once,
    so that what one gains in momentum the other loses, to rounding.
    """

    def __init__(self, system: Particles) -> None:
        self.system = system
        self.i, self.j = torch.triu_indices(system.n, system.n, 1)
        one = torch.eye(system.n, dtype=torch.float64)
        self.incidence = one[self.i] - one[self.j]

    def __call__(
        self,
        t: Tensor,
        z: Float[Tensor, "systems n 4"],
        inside: Float[Tensor, "systems pairs"],
    ) -> Float[Tensor, "systems n 4"]:
        """Velocities and accelerations; `inside` is 1 for the pairs that interact, else 0."""
        del t  # autonomous
        x, y, vx, vy = self._differences(z)
        distance = torch.addcmul(x * x, y, y).sqrt()
        rate = torch.addcmul(x * vx, y, vy) / distance
        strength = self.system.spring(distance, rate) * inside / distance
        force = torch.stack([strength * x, strength * y]) @ self.incidence
        acceleration = force.movedim(0, -1)
        if self.system.anchor:
            acceleration = acceleration - z[..., :2]
        return torch.cat([z[..., 2:], acceleration], -1)

    def gaps(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """d² − (r/2)² of every pair, negative where it interacts, and its rate of change."""
        x, y, vx, vy = self._differences(z)
        gap = torch.addcmul(x * x, y, y) - self.system.reach**2
        return gap, torch.addcmul(x * vx, y, vy) * 2

    def _differences(self, z: Tensor) -> tuple[Tensor, ...]:
        """x, y, x′ and y′ of every pair: sums over two channels are slower than two channels."""
        channels = z.movedim(-1, 0).contiguous()
        return (channels.index_select(-1, self.i) - channels.index_select(-1, self.j)).unbind()

    def check(self, gap: Float[Tensor, "*path systems pairs"], t: Tensor) -> None:
        """Refuse particles in one place."""
        squares = gap + self.system.reach**2
        if bool(squares.min() > (COINCIDENT * self.system.r) ** 2):
            return
        closest = squares.reshape(-1, *squares.shape[-2:]).amin(0)
        system, pair = divmod(int(closest.argmin()), len(self.i))
        raise CoincidentParticlesError(
            system, int(self.i[pair]), int(self.j[pair]), f"at t ≈ {float(t[system]):.6g}"
        )


class NearPairs:
    """The field of one large system, `[n, 4]`, whose near pairs are found at each evaluation."""

    def __init__(self, system: Particles) -> None:
        self.system = system

    def __call__(self, t: Tensor, z: Float[Tensor, "n 4"]) -> Float[Tensor, "n 4"]:
        """Velocities and accelerations."""
        del t  # autonomous
        i, j = close_pairs(z[:, :2], self.system.reach)
        x, v = (z[i] - z[j]).split(2, -1)
        distance = torch.linalg.vector_norm(x, dim=-1)
        strength = self.system.spring(distance, (x * v).sum(-1) / distance) / distance
        force = strength[:, None] * x
        acceleration = -z[:, :2] if self.system.anchor else torch.zeros_like(z[:, :2])
        acceleration = acceleration.index_add(0, i, force).index_add(0, j, force, alpha=-1)
        return torch.cat([z[:, 2:], acceleration], -1)
