"""The models of table 3: from the state of all particles to that one time step later.

    static            h⁺ = MLP(h), 4n-8n-8n-4n on the flat state
    neural_ode        h′ = MLP(h), the same
    gde               h′ = GCN(h, A), 4-16-16-4
    gde_ii            x″ = g([x, x′]) + φ(L [x, x′]), L = I − D⁻¹A, φ 4-16-16-2: the physical second
                      order, the table's row; its convolution sees how a particle differs from its
                      neighbours, not their common mean
    gde_ii_self_loops x″ = GCN([x, x′], A), 4-16-16-2: the same order, with the convolution of gde
    gde_ii_latent     h″ = GCN([h, h′], A), 8-32-32-4, h′(0) a linear layer of h
    gde_ii_literal    [h, a]′ = GCN([h, a], A), 8-32-32-8, a(0) = 0: the paper's widths
    gmde_ii           x″ = g([x, x′]) + Σ m(difference of states), messages on relative states
    pair_force        x″ = g([x, x′]) + Σ φ(d, ḋ) n, forces along the line between two
    persistence       h⁺ = h
    harmonic          x″ = −x exactly: the motion of particles that do not interact

GCN has Kipf's convolution, with self-loops; the paper leaves open how its operator is computed.

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", multi-agent experiment. A is
made from the positions of the state that the field is asked at, predicted ones in a forecast.
"""

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields import (
    Augmented,
    GraphConvField,
    GraphConvMap,
    PairForceMap,
    RadiusField,
    RelativeMessageMap,
    SecondOrder,
    pack,
    unpack,
)
from graphode.fields.activation import find_activation
from graphode.flows import Flow
from graphode.graphs import dense_radius_graph
from graphode.models import GDE, MLP, MLPField
from graphode.models.dense import DenseMap

if TYPE_CHECKING:
    from graphode.experiments.multi_agent import MultiAgent

Model = Literal[
    "static",
    "neural_ode",
    "gde",
    "gde_ii",
    "gde_ii_self_loops",
    "gde_ii_latent",
    "gde_ii_literal",
    "gmde_ii",
    "pair_force",
    "persistence",
    "harmonic",
]
BASELINES = ("persistence", "harmonic")
FLAT = ("static", "neural_ode")  # those that see all particles as one vector
CHANNELS = 4  # [x, x′] in the plane
Step = Callable[[Tensor], Tensor]


class ParticleField(nn.Module):
    """A field on the graph of the particles, rebuilt from the state or given as an oracle.

    A state of two more channels than the field's carries the true positions in them, which stay
    where they are and decide who is near whom. That is the oracle; without them the graph is that
    of the state itself.

    Args:
        field: On the state [x, x′], or on one that it widens itself.
        radius: Within which particles interact.
        normalize: How the field wants its graph.

    Shapes:
        - **h:** `[..., n, 4]`, or with true positions `[..., n, 6]`
    """

    def __init__(
        self, field: Callable[..., Tensor], radius: float, normalize: str | None = "sym"
    ) -> None:
        super().__init__()
        self.inside = RadiusField(field, radius, normalize=normalize)
        # A second-order field packs velocities; here they are part of the state already.
        self.widens = isinstance(field, (Augmented, LatentSecondOrder))

    def forward(self, t: float | Tensor, z: Tensor, graph: Any = None) -> Tensor:
        """The velocity."""
        if not self._has_oracle(z):
            return self.inside(t, z, graph)
        state, true = z[..., :-2], z[..., -2:]
        velocity = self.inside.field(t, state, self.inside.graph_of(true))
        return torch.cat([velocity, torch.zeros_like(true)], -1)

    def pack(self, h: Float[Tensor, "*batch n state"]) -> Tensor:
        """What the field inside needs beside the state, before the true positions."""
        if not self.widens:
            return h
        state = pack(self.inside.field, h[..., :CHANNELS])
        return torch.cat([state, h[..., CHANNELS:]], -1)

    def unpack(self, z: Tensor) -> Tensor:
        """[x, x′]."""
        if self._has_oracle(z):
            z = z[..., :-2]
        return unpack(self.inside.field, z) if self.widens else z

    def _has_oracle(self, z: Tensor) -> bool:
        return z.shape[-1] == (2 * CHANNELS if self.widens else CHANNELS) + 2


class LatentSecondOrder(SecondOrder):
    """h″ = F([h, h′]) with a first velocity that a linear layer makes of h.

    From h′ = 0 a state would move by h″ dt²/2 only, and h″ would have to be of the size 1/dt.
    """

    def __init__(self, field: Callable[..., Tensor]) -> None:
        super().__init__(field, sees_velocity=True)
        self.lift = nn.Linear(CHANNELS, CHANNELS)

    def pack(self, h: Tensor, velocity: Tensor | None = None) -> Tensor:
        """[h, lift(h)]."""
        return torch.cat([h, self.lift(h) if velocity is None else velocity], -1)


class RelativeConvolution(nn.Module):
    """x″ = g([x, x′]) + φ(L [x, x′]), on a graph normalised to L = I − D⁻¹A.

    g is linear; φ has no biases, so that with an odd activation a particle alone follows g.

    Args:
        hidden: Width between the three layers of φ.
        activation: Between them.

    Shapes:
        - **h:** `[..., n, 4]` → `[..., n, 2]`
    """

    def __init__(self, hidden: int, activation: str) -> None:
        super().__init__()
        widths = (CHANNELS, hidden, hidden, CHANNELS // 2)
        self.layers = nn.ModuleList(
            nn.Linear(before, after, bias=False) for before, after in itertools.pairwise(widths)
        )
        self.own = nn.Linear(CHANNELS, CHANNELS // 2)
        self.activation = find_activation(activation)

    def forward(self, t: float | Tensor, h: Tensor, graph: Any) -> Tensor:
        """The acceleration; the time makes no difference."""
        del t
        z = self.layers[0](graph.propagate(h))
        for layer in self.layers[1:]:
            z = layer(self.activation(z))
        return self.own(h) + z


class SeesAdjacency(nn.Module):
    """An MLP on the flat state of all particles and the entries of A above the diagonal.

    Args:
        n: Particles.
        hidden: Width between its three layers.
        radius: Of A.
        activation: Between them.
    """

    def __init__(self, n: int, hidden: int, radius: float, activation: str) -> None:
        super().__init__()
        pairs = n * (n - 1) // 2
        self.map = DenseMap([CHANNELS * n + pairs, hidden, hidden, CHANNELS * n], activation)
        self.n, self.radius = n, radius

    def forward(self, h: Tensor, graph: Any = None) -> Tensor:
        """`[..., n, 4]` from `[..., n, 4]`."""
        del graph
        i, j = torch.triu_indices(self.n, self.n, 1, device=h.device)
        edges = dense_radius_graph(h[..., :2], self.radius).matrix[..., i, j]
        # One row, as layers expect nodes before channels.
        flat = torch.cat([h.flatten(-2), edges], -1)[..., None, :]
        return self.map(flat).reshape(h.shape)


class AsField(nn.Module):
    """dh/dt = map(h)."""

    def __init__(self, map: nn.Module) -> None:
        super().__init__()
        self.map = map

    def forward(self, t: float | Tensor, h: Tensor, graph: Any = None) -> Tensor:
        """The velocity."""
        del t
        return self.map(h, graph)


def builder(config: "MultiAgent") -> Callable[[int], nn.Module]:
    """`build(seed)` of the configured model; the ensemble seeds the generator around it."""

    def build(seed: int) -> nn.Module:
        del seed
        return _static(config) if config.model == "static" else _flowing(config)

    return build


def baseline(name: str, dt: float) -> Step:
    """A model that learns nothing, as a function of the state."""
    cosine, sine = math.cos(dt), math.sin(dt)

    def harmonic(h: Tensor) -> Tensor:
        x, v = h[..., :CHANNELS].chunk(2, -1)
        return torch.cat([cosine * x + sine * v, cosine * v - sine * x], -1)

    return harmonic if name == "harmonic" else lambda h: h[..., :CHANNELS]


def _static(config: "MultiAgent") -> nn.Module:
    n, hidden = config.n, config.hidden * config.n
    if config.adjacency:
        return SeesAdjacency(n, hidden, config.reach, config.activation)
    return MLP(CHANNELS, hidden, CHANNELS, layers=3, nodes=n, activation=config.activation)


def _flowing(config: "MultiAgent") -> nn.Module:
    field = _neural(config) if config.model == "neural_ode" else _graph_field(config)
    flow = Flow(field, solver=config.solver, num_steps=config.num_steps)
    return GDE(flow=flow, t1=config.dt)


def _neural(config: "MultiAgent") -> nn.Module:
    n, hidden = config.n, config.hidden * config.n
    if config.adjacency:
        return AsField(SeesAdjacency(n, hidden, config.reach, config.activation))
    return MLPField(CHANNELS, hidden, layers=3, nodes=n, activation=config.activation)


def _graph_field(config: "MultiAgent") -> ParticleField:
    radius, activation, hidden = config.reach, config.activation, config.hidden
    both, half = CHANNELS, CHANNELS // 2
    if config.model == "gde":
        field = GraphConvField([both, hidden, hidden, both], activation)
    elif config.model == "gde_ii":
        field = SecondOrder(RelativeConvolution(hidden, activation), True)
        return ParticleField(field, radius, normalize="rw_laplacian")
    elif config.model == "gde_ii_self_loops":
        field = SecondOrder(GraphConvMap([both, hidden, hidden, half], activation), True)
    elif config.model == "gde_ii_latent":
        field = LatentSecondOrder(GraphConvMap([2 * both, hidden, hidden, both], activation))
    elif config.model == "gde_ii_literal":
        inside = GraphConvField([2 * both, hidden, hidden, 2 * both], activation)
        field = Augmented(inside, both)
    else:
        relative = config.model == "gmde_ii"
        widths = [both, hidden, hidden, half] if relative else [2, hidden, hidden, 1]
        make = RelativeMessageMap if relative else PairForceMap
        forces = make(DenseMap(widths, activation), nn.Linear(both, half))
        return ParticleField(SecondOrder(forces, True), radius, normalize=None)
    return ParticleField(field, radius)
