"""Every model of the library, built small, so that each law is tested for all of them."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

import graphode as gd
from graphode import models as M
from graphode.graphs import Graph

IN, CHANNELS, OUT = 5, 4, 3


def gde() -> nn.Module:
    """A GDE of the user's own, with layers that know no graph."""
    field = gd.Controlled(gd.GraphConvField([CHANNELS, 6, CHANNELS]), CHANNELS)
    flow = gd.Flow(field, solver="heun", num_steps=3)
    return M.GDE(encoder=nn.Linear(IN, CHANNELS), flow=flow, readout=nn.Linear(CHANNELS, OUT))


WIDTHS = (IN, CHANNELS, OUT)
MODELS: dict[str, Callable[[], nn.Module]] = {
    "GDE": gde,
    "GCDE": lambda: M.GCDE(*WIDTHS),
    "GCDE-rk2": lambda: M.GCDE.rk2(*WIDTHS),
    "GCDE-rk4": lambda: M.GCDE.rk4(*WIDTHS),
    "GCDE-dpr5": lambda: M.GCDE.dpr5(*WIDTHS),
    "diffusion": lambda: M.GDE(
        encoder=M.MLP(*WIDTHS, dropout=[0.5, 0.2]),
        flow=gd.Flow(gd.PathGate(gd.PageRankField(OUT), OUT), solver="euler", num_steps=4),
        t1=4.0,
    ),
    "GADE": lambda: M.GADE(*WIDTHS, heads=2),
    "GADE-gatv2": lambda: M.GADE(*WIDTHS, scores="gatv2", solver="midpoint"),
    "GMDE": lambda: M.GMDE(*WIDTHS),
    "GMDE-relative": lambda: M.GMDE(*WIDTHS, hidden_channels=6, relative=True),
    "GCN": lambda: M.GCN(*WIDTHS),
    "GCN-residual": lambda: M.GCN(
        *WIDTHS, layers=5, hidden_activation="tanh", final_activation=None, residual=True
    ),
    "GCN-star": lambda: M.GCN.star(*WIDTHS, layers=4),
    "GAT": lambda: M.GAT(*WIDTHS, heads=2, out_heads=2),
    "MLP": lambda: M.MLP(*WIDTHS, layers=3, activation="softplus", dropout=0.5),
    "NeuralODE": lambda: M.NeuralODE(*WIDTHS, hidden_channels=6),
}
# All but the user's own, whose nn.Linear is dense.
TAKES_SPARSE = [name for name in MODELS if name != "GDE"]


def random_graph(nodes: int = 6, seed: int = 0) -> Graph:
    """A random undirected graph with positive weights, not normalised."""
    generator = torch.Generator().manual_seed(seed)
    upper = torch.rand(nodes, nodes, generator=generator, dtype=torch.float64) + 0.3
    matrix = upper * (torch.rand(nodes, nodes, generator=generator) < 0.6).triu(1)
    return Graph.from_dense(matrix + matrix.t())


def bag_of_words(nodes: int = 6, words: int = IN) -> Tensor:
    """Counts, many of them zero; the last node has no word."""
    counts = torch.randint(0, 3, (nodes, words)).to(torch.get_default_dtype())
    counts[-1] = 0
    return counts
