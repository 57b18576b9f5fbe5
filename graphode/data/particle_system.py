"""The planar particle system of the paper's multi-agent experiment: its law, not its solution.

    xᵢ″ = −xᵢ + Σ_{j: 2d ≤ r} f_ij,    f_ij = [α (r − d) − β ḋ] n_ij,
    d = ‖xᵢ − xⱼ‖,    n_ij = (xᵢ − xⱼ) / d,    ḋ = ⟨xᵢ′ − xⱼ′, n_ij⟩

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", supplementary material. A spring
of rest length r that acts only inside r/2, where it pushes, with drag along the line between the
two. The paper prints xᵢ″ = −xᵢ − Σ f_ij with the same f_ij, which attracts and feeds energy in; its
text describes the spring with drag, and so does `sign="physical"`, our default. The paper gives
neither α, β nor the initial conditions: those here are ours.

The force jumps at d = r/2, from 0 to α r/2, but its potential does not:

    E = Σᵢ ½ ‖xᵢ′‖² + ½ ‖xᵢ‖² + Σ_{i<j: 2d ≤ r} ½ α [(r − d)² − (r/2)²],    E′ = −β Σ ḋ²,

and with the printed sign the sum over pairs is subtracted and E′ = +β Σ ḋ².
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from graphode.data.neighbours import close_pairs

Sign = Literal["physical", "printed"]
# Up to this many particles, all pairs are looked at in one go; beyond, those that are near.
ALL_PAIRS = 128
CHUNK_PAIRS = 1 << 22


@dataclasses.dataclass(frozen=True, kw_only=True)
class Particles:
    """Parameters of the system; the defaults are the paper's where it has any.

    Args:
        n: Number of particles.
        r: Rest length of the springs; two particles interact where 2 ‖xᵢ − xⱼ‖ ≤ r.
        alpha: Stiffness α of the springs.
        beta: Drag β along the springs.
        duration: The T of the paper.
        dt: Time between outputs.
        sign: "physical" repels and drags; "printed" is the paper's formula to the letter, which
            attracts and drives: its energy grows.
        anchor: Whether the term −xᵢ is there. Without it momentum is conserved.
        box: Positions start uniform on [−box, box]².
        speed: Velocities start uniform on [−speed, speed]².
    """

    n: int = 10
    r: float = 1.0
    alpha: float = 1.0
    beta: float = 0.1
    duration: float = 5.0
    dt: float = 1 / 512
    sign: Sign = "physical"
    anchor: bool = True
    box: float = 1.0
    speed: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or int(self.n) != self.n or self.n < 2:
            raise ValueError(
                f"`n` must be a whole number of particles, 2 or more, but is {self.n!r}. One "
                f"particle interacts with nobody: it is a pendulum."
            )
        for name, remedy in _POSITIVE.items():
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"`{name}` must be positive and finite, but is {value}. {remedy}")
        for name in ("alpha", "beta", "speed"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(
                    f"`{name}` must be finite and 0 or more, but is {value}. To attract instead of "
                    f"repel, use sign='printed'."
                )
        if self.num_steps < 1:
            raise ValueError(
                f"`dt` must not exceed `duration`, but is {self.dt}, longer than {self.duration}. "
                f"The first output after the start comes at `dt`."
            )
        if self.sign not in ("physical", "printed"):
            raise ValueError(
                f"`sign` must be 'physical' or 'printed', but is {self.sign!r}. The first is a "
                f"spring with drag, the second the paper's formula, whose energy grows."
            )

    @property
    def num_steps(self) -> int:
        """Steps of `dt` that fit into `duration`."""
        return math.floor(self.duration / self.dt * (1 + 1e-12))

    @property
    def times(self) -> Float[Tensor, " time"]:
        """0, dt, 2 dt, … up to `duration`."""
        return torch.arange(self.num_steps + 1, dtype=torch.float64) * self.dt

    @property
    def reach(self) -> float:
        """r/2: particles interact, and are joined by an edge, at this distance and below."""
        return self.r / 2

    def at_density(self, n: int) -> "Particles":
        """The same law for another number of particles, equally dense, now and later.

        Box and speeds grow as √n: in the harmonic trap positions and velocities change places
        every quarter period, so that both have to.
        """
        scale = math.sqrt(n / self.n)
        return dataclasses.replace(self, n=n, box=self.box * scale, speed=self.speed * scale)

    def initial_states(self, seeds: Sequence[int]) -> Float[Tensor, "systems n 4"]:
        """Positions and velocities [x, x′] at time 0, one system per seed, each from its own."""
        states = []
        for seed in seeds:
            generator = torch.Generator().manual_seed(seed)
            uniform = 2 * torch.rand(self.n, 4, generator=generator, dtype=torch.float64) - 1
            states.append(uniform * uniform.new_tensor([self.box] * 2 + [self.speed] * 2))
        return torch.stack(states)

    def pair_force(
        self, distance: Float[Tensor, "*any"], rate: Float[Tensor, "*any"] | float = 0.0
    ) -> Float[Tensor, "*any"]:
        """The force on one particle away from the other; zero beyond r/2.

        Args:
            distance: d.
            rate: ḋ, positive where the two move apart.
        """
        return torch.where(2 * distance <= self.r, self.spring(distance, rate), 0.0)

    def spring(self, distance: Tensor, rate: Tensor | float) -> Tensor:
        """The force of a pair that interacts, at whatever distance."""
        force = self.alpha * (self.r - distance) - self.beta * rate
        return force if self.sign == "physical" else -force

    def energy(
        self, positions: Float[Tensor, "*batch n 2"], velocities: Float[Tensor, "*batch n 2"]
    ) -> Float[Tensor, "*batch"]:
        """Kinetic energy, that of the anchor, and that of the pairs."""
        total = velocities.square().sum((-2, -1)) / 2
        if self.anchor:
            total = total + positions.square().sum((-2, -1)) / 2
        frames = positions.reshape(-1, *positions.shape[-2:])
        rows = 1 if self.n > ALL_PAIRS else max(1, CHUNK_PAIRS // self.n**2)
        pairs = torch.cat([self._pair_energy(part) for part in frames.split(rows)])
        return total + pairs.reshape(total.shape)

    def _pair_energy(self, frames: Tensor) -> Tensor:
        if self.n > ALL_PAIRS:
            i, j = close_pairs(frames[0], self.reach)
        else:
            i, j = torch.triu_indices(self.n, self.n, 1)
        distance = torch.linalg.vector_norm(frames[:, i] - frames[:, j], dim=-1)
        energy = self.alpha / 2 * ((self.r - distance).square() - self.reach**2)
        energy = torch.where(2 * distance <= self.r, energy, 0.0).sum(-1)
        return energy if self.sign == "physical" else -energy


_POSITIVE = {
    "r": "It is the rest length of the springs.",
    "duration": "Time runs from 0 to it.",
    "dt": "It is the time between two outputs.",
    "box": "Positions start in [−box, box]²; two particles in one place have no direction.",
}
