"""Every field of the library, built small, so that each law is tested for all of them."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphode import fields as F
from graphode.graphs import Graph

CHANNELS = 4


@dataclass(frozen=True)
class Case:
    """A field and what it is given.

    Args:
        build: Makes the field, for user states of `CHANNELS` channels.
        prepare: Makes the graph it is given from a weighted one.
        uses_weights: Whether edge weights matter to it.
        weight_gradients: Whether they receive gradients.
        directed: Whether it takes directed graphs.
    """

    build: Callable[[], nn.Module]
    prepare: Callable[[Graph], Graph] = lambda graph: graph.normalize("sym")
    uses_weights: bool = True
    weight_gradients: bool = True
    directed: bool = True


def mlp(*widths: int) -> nn.Sequential:
    """A small smooth network."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def pyg(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """A PyG layer as a field."""
    return lambda: F.ConvField(build())


def gcn() -> nn.Module:
    """PyG's graph convolution."""
    from torch_geometric.nn import GCNConv

    return GCNConv(CHANNELS, CHANNELS)


def unnormalised(graph: Graph) -> Graph:
    """The graph as it is."""
    return graph


def varied(field: F.DepthVarying) -> F.DepthVarying:
    """The same with terms that are not zero."""
    for terms in field.terms:
        nn.init.normal_(terms, std=0.3)
    return field


CASES: dict[str, Case] = {
    "GraphConv": Case(lambda: F.GraphConvField([4, 6, 4])),
    "Attention-gat": Case(lambda: F.AttentionField(4, 2, activation="tanh"), uses_weights=False),
    "Attention-gatv2": Case(
        lambda: F.AttentionField(4, 2, scores="gatv2", activation="tanh"), uses_weights=False
    ),
    "Attention-mean": Case(
        lambda: F.AttentionField(4, 3, scores="gatv2", concat=False), uses_weights=False
    ),
    "MessagePassing": Case(lambda: F.MessagePassingField(mlp(8, 5, 3), mlp(3, 4))),
    "MessagePassing-relative": Case(
        lambda: F.MessagePassingField(mlp(4, 5, 4), relative=True, see_target=False),
        prepare=unnormalised,
    ),
    "Conv-GCN": Case(pyg(gcn)),
    "SecondOrder": Case(lambda: F.SecondOrder(F.GraphConvField([4, 5, 4]))),
    "SecondOrder-velocity": Case(
        lambda: F.SecondOrder(F.GraphConvMap([8, 5, 4]), sees_velocity=True)
    ),
    "HigherOrder": Case(lambda: F.HigherOrder(F.GraphConvMap([12, 5, 4]), order=3)),
    "Augmented": Case(lambda: F.Augmented(F.GraphConvField([6, 6, 6]), 2)),
    "Augmented-lift": Case(
        lambda: F.Augmented(F.GraphConvField([6, 6, 6]), 2, lift=nn.Linear(4, 2))
    ),
    "Controlled-add": Case(lambda: F.Controlled(F.GraphConvField([4, 4]), 4)),
    "Controlled-concat": Case(lambda: F.Controlled(F.GraphConvMap([8, 5, 4]), 4, how="concat")),
    "Controlled-source": Case(
        lambda: F.Controlled(F.AttentionField(4), 4, how="source"), uses_weights=False
    ),
    "TimeConcat": Case(lambda: F.TimeConcat(F.GraphConvMap([5, 6, 4]))),
    "DepthVarying": Case(lambda: varied(F.DepthVarying(F.GraphConvField([4, 4]), 2))),
    "DepthVarying-fourier": Case(
        lambda: varied(F.DepthVarying(F.GraphConvField([4, 4]), 3, basis="fourier"))
    ),
    "Cheb": Case(lambda: F.ChebField(4, order=3)),
    "Cayley": Case(lambda: F.CayleyField(4, iterations=4)),
    "Spectral": Case(lambda: F.SpectralField(4), weight_gradients=False, directed=False),
    "Dual": Case(lambda: F.DualField(4, walks_per_node=None)),
    "Diffusion": Case(lambda: F.DiffusionField(4)),
    "WalkPower": Case(lambda: F.WalkPowerField(4, terms=4)),
    "CGNN": Case(lambda: F.CGNNField(4)),
    "CGNN-plain": Case(lambda: F.CGNNField(4, mixes=False)),
    "GCNII": Case(lambda: F.GCNIIField(4, activation="tanh")),
    "GCNII-layers": Case(lambda: F.GCNIIField(4, activation="tanh", layers=3)),
    "GCNII-varying": Case(lambda: varied(F.DepthVarying(F.GCNIIField(4, 0.3, 2.0, "tanh"), 2))),
    "PageRank": Case(lambda: F.PageRankField(4, 0.2)),
    "PageRank-diffusion": Case(lambda: F.PageRankField(4, 0.0)),
    "PathGate": Case(lambda: F.PathGate(F.PageRankField(4, 0.2), 4)),
    "PathGate-plain": Case(lambda: F.PathGate(F.GraphConvField([4, 4]), 4, gate=False)),
    "GRAND-linear": Case(
        lambda: F.GRANDField(4, heads=2, attention_channels=3, linear=True), uses_weights=False
    ),
    "GRAND-nonlinear": Case(lambda: F.GRANDField(4, attention_channels=3), uses_weights=False),
    "GRAND-source": Case(
        lambda: F.GRANDField(4, attention_channels=3, source=True), uses_weights=False
    ),
    "GraphCON": Case(lambda: F.GraphCONField(F.GraphConvField([4, 4]), activation="tanh")),
    "Adaptive": Case(lambda: F.AdaptiveField(4, 3), uses_weights=False),
    "Adaptive-sparse": Case(lambda: F.AdaptiveField(4, 3, neighbors=3), uses_weights=False),
    "Costed-kinetic": Case(lambda: F.Costed(F.GraphConvField([4, 5, 4]))),
    "Costed-jacobian": Case(lambda: F.Costed(F.GraphConvField([4, 5, 4]), jacobian=True)),
    "Costed-attention": Case(
        lambda: F.Costed(F.AttentionField(4, 2, "gatv2", "tanh"), False, jacobian=True),
        uses_weights=False,
    ),
    "nested": Case(
        lambda: F.SecondOrder(
            F.Controlled(F.Augmented(F.GraphConvField([5, 5]), 1), 5, control_channels=4)
        )
    ),
}


def weighted_graph(nodes: int = 6, seed: int = 0) -> Graph:
    """A random undirected graph with positive weights; its last node is isolated."""
    generator = torch.Generator().manual_seed(seed)
    upper = torch.rand(nodes, nodes, generator=generator, dtype=torch.float64) + 0.3
    kept = (torch.rand(nodes, nodes, generator=generator) < 0.6).triu(1)
    kept[:, -1] = False
    matrix = upper * kept
    return Graph.from_dense(matrix + matrix.t())


def state(field: nn.Module, *shape: int) -> Tensor:
    """A random state of the width the field wants."""
    width = F.pack(field, torch.zeros(*shape, CHANNELS)).shape[-1]
    return torch.randn(*shape, width)
