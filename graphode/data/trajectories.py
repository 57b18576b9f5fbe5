"""What a simulation of particles gives back: where they were, how fast, and who met whom."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graphode.data.particle_system import Particles
from graphode.graphs import Graph, radius_graph


@dataclass(frozen=True)
class Trajectories:
    """Simulated systems, all at the same times.

    Attributes:
        system: Their law.
        times: The output times, 0 first.
        positions: x.
        velocities: x′.
        crossings: How often each system had a pair come within r/2, or leave; −1 where not counted.
        evaluations: Calls of the right-hand side, each on all systems that were solved together.
    """

    system: Particles
    times: Float[Tensor, " time"]
    positions: Float[Tensor, "systems time n 2"]
    velocities: Float[Tensor, "systems time n 2"]
    crossings: Int[Tensor, " systems"]
    evaluations: int

    @property
    def states(self) -> Float[Tensor, "systems time n 4"]:
        """[x, x′], as models take them and `SecondOrder` packs them."""
        return torch.cat([self.positions, self.velocities], -1)

    @property
    def adjacency(self) -> Bool[Tensor, "systems time n n"]:
        """A_t: who is within r/2 of whom, nobody of themselves; for few particles."""
        x = self.positions
        near = 2 * torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") <= self.system.r
        return near & ~torch.eye(self.system.n, dtype=torch.bool)

    def graph(self, step: int) -> Graph:
        """The graph of A_t at the `step`-th time, of all systems as a batch."""
        return radius_graph(self.positions[:, step], self.system.reach)

    def energy(self) -> Float[Tensor, "systems time"]:
        """Kinetic and potential energy; falls by drag, and with the printed sign grows."""
        return self.system.energy(self.positions, self.velocities)

    def momentum(self) -> Float[Tensor, "systems time 2"]:
        """Σ x′, constant without the anchor."""
        return self.velocities.sum(-2)

    def angular_momentum(self) -> Float[Tensor, "systems time"]:
        """Σ x × x′, constant: all forces point to the origin or along the line of a pair."""
        x, v = self.positions, self.velocities
        return (x[..., 0] * v[..., 1] - x[..., 1] * v[..., 0]).sum(-1)
