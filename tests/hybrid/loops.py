"""Hybrid systems as plain loops, one sample at a time: what the batched ones are held to."""

import torch
from torch import Tensor, nn

import graphode as gd


def random_graph(nodes: int = 5, seed: int = 0, kind: str | None = "sym") -> gd.Graph:
    generator = torch.Generator().manual_seed(seed)
    dense = torch.rand(nodes, nodes, generator=generator, dtype=torch.float64)
    dense = dense * (torch.rand(nodes, nodes, generator=generator) < 0.5)
    graph = gd.Graph.from_dense((dense + dense.T).fill_diagonal_(0))
    return graph if kind is None else graph.normalize(kind)


def gru_system(in_channels: int = 2, channels: int = 3, **options) -> gd.HybridSystem:
    """A small GCDE-GRU; `options` of the flow."""
    settings = {"solver": "dopri5", "rtol": 1e-6, "atol": 1e-8, **options}
    field = gd.GraphConvField([channels] * 3, activation="tanh")
    return gd.HybridSystem(
        flow=gd.Flow(field, **settings),
        jump=gd.GraphGRUCell(in_channels, channels),
        readout=nn.Linear(channels, 1),
    )


def one_by_one(
    system: gd.HybridSystem,
    x: Tensor,
    times: Tensor,
    graphs: list,
    query: float,
    mask: Tensor | None = None,
) -> Tensor:
    """One sample, one query: flow to each time before it, jump there, flow to the query, read.

    Args:
        x: `[steps, nodes, channels]`
        times: `[steps]`
        graphs: One per step.
        mask: `[steps, nodes]`
    """
    parts = system.parts
    h = x.new_zeros(x.shape[1], parts.channels)
    now, graph = float(times[0]), graphs[0]

    def flow_to(t: float, h: Tensor, graph: gd.Graph) -> Tensor:
        z = gd.pack(system.flow.field, parts.flowing(h))
        return parts.moved(h, gd.unpack(system.flow.field, system.flow(z, graph, now, t)))

    for k, t in enumerate(times.tolist()):
        if t >= query:
            break
        h = flow_to(t, h, graph if system.causal else graphs[k])
        observed = torch.ones(x.shape[1], dtype=torch.bool) if mask is None else mask[k]
        seen = torch.where(observed[:, None], x[k], 0.0)
        h = torch.where(observed[:, None], system.jump(h, seen, graphs[k]), h)
        now, graph = t, graphs[k]
    upcoming = [k for k, t in enumerate(times.tolist()) if t >= query]
    if not system.causal and upcoming:
        graph = graphs[upcoming[0]]
        # The flow goes to the next observation; the query is read on its way.
        end = float(times[upcoming[0]])
        if end == now:
            return system.readout(parts.seen(h), graph)
    h = flow_to(query, h, graph)
    return system.readout(parts.seen(h), graph)
