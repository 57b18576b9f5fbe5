"""GCDE-GRU as others would build it, on torchdiffeq: the rivals of `hybrid.py`.

    shared_field    our cell, field and head: only the solver differs
    pyg             PyG's `GCNConv` for gates and field, on edge indices
    pyg_sparse      the same on a sparse matrix, which PyG hands to torch's CSR product

All integrate the whole batch over the union of the gaps its samples have at a step, with one
`odeint`, and pick for each sample the state at its own gap: the way of the authors' released
`ODEBlock.forward_batched`. Weights are ours. PyG's samples are blocks of one large graph, as its
`DataLoader` makes them: faster than the other way, states `[samples, nodes, channels]` on one graph
(33 against 41 ms a layer, forward and backward, one core). Normalised graphs are cached in layers.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import graphode as gd

TOLERANCES: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-4}
Forecast = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, int]]


def over_the_union(
    field: Callable[[Tensor, Tensor], Tensor], h: Tensor, gaps: Tensor
) -> tuple[Tensor, int]:
    """The state of each sample after its own gap, and how often the field was called.

    Shapes:
        - **h:** `[samples, …]`; the same comes out.
        - **gaps:** `[samples]`
    """
    import torchdiffeq

    calls = 0

    def counted(t: Tensor, h: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return field(t, h)

    union, own = torch.unique(torch.cat([gaps.new_zeros(1), gaps]), return_inverse=True)
    states = torchdiffeq.odeint(counted, h, union.to(h.dtype), method="dopri5", **TOLERANCES)
    assert isinstance(states, Tensor)
    return states[own[1:], torch.arange(len(gaps), device=h.device)], calls


def _through(
    x: Tensor,
    times: Tensor,
    queries: Tensor,
    h: Tensor,
    jump: Callable[[Tensor, Tensor], Tensor],
    field: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, int]:
    """Jump and flow from the first observation to the query; with the field's calls."""
    moments = torch.cat([times, queries], -1)
    calls = 0
    for step in range(times.shape[1]):
        h = jump(h, x[:, step])
        h, more = over_the_union(field, h, moments[:, step + 1] - moments[:, step])
        calls += more
    return h, calls


def shared_field(model: gd.GCDEGRU, graph: gd.Graph) -> Forecast:
    """Everything of ours but the solver."""
    assert isinstance(model.flow, gd.Flow)
    field = model.flow.field

    def forecast(x: Tensor, times: Tensor, queries: Tensor) -> tuple[Tensor, int]:
        h = x.new_zeros(*x[:, 0].shape[:-1], model.parts.channels)
        h, calls = _through(
            x,
            times,
            queries,
            h,
            jump=lambda h, x: model.jump(h, x, graph),
            field=lambda t, h: field(t, h, graph),
        )
        return model.readout(h, graph)[:, None], calls

    return forecast


class PyGModel(nn.Module):
    """The paper's GCDE-GRU of PyG's layers, with the weights of ours.

        z, r = σ(C([x, h])),    h̃ = tanh(C([x, r ⊙ h])),    h⁺ = z ⊙ h + (1 − z) ⊙ h̃
        dh/dt = C ∘ tanh ∘ C (h)

    Args:
        model: Whose weights to take.
        edges: Edge indices `[2, edges]` of one sample's graph, without self-loops.
        samples: How many samples a batch has.
        nodes: How many nodes a sample has.
        sparse: Whether graphs are sparse matrices.

    Shapes:
        - **h:** `[samples · nodes, channels]`
    """

    def __init__(
        self, model: gd.GCDEGRU, edges: Tensor, samples: int, nodes: int, sparse: bool
    ) -> None:
        super().__init__()
        assert isinstance(model.flow, gd.Flow)
        ours: Any = model
        self.channels, self.nodes = model.parts.channels, nodes
        self.gates = _convolution(ours.jump.gates)
        self.candidate = _convolution(ours.jump.candidate)
        self.first, self.second = (_convolution(layer) for layer in ours.flow.field.layers)
        self.head = model.readout
        blocks = torch.cat([edges + sample * nodes for sample in range(samples)], 1)
        self.edges = blocks if not sparse else _as_matrix(blocks, samples * nodes)

    def jump(self, h: Tensor, x: Tensor) -> Tensor:
        """The cell."""
        both = torch.sigmoid(self.gates(torch.cat([x, h], -1), self.edges))
        update, reset = both.chunk(2, -1)
        candidate = torch.tanh(self.candidate(torch.cat([x, reset * h], -1), self.edges))
        return update * h + (1 - update) * candidate

    def field(self, t: Tensor, h: Tensor) -> Tensor:
        """The flow."""
        del t
        return self.second(torch.tanh(self.first(h, self.edges)), self.edges)

    def forward(self, x: Tensor, times: Tensor, queries: Tensor) -> tuple[Tensor, int]:
        """The forecast `[samples, 1, nodes, 1]`, and how often the field was called."""
        shape = (len(x), self.nodes, self.channels)

        def jump(h: Tensor, x: Tensor) -> Tensor:
            return self.jump(h.flatten(0, 1), x.flatten(0, 1)).view(shape)

        def field(t: Tensor, h: Tensor) -> Tensor:
            return self.field(t, h.flatten(0, 1)).view(shape)

        h, calls = _through(x, times, queries, x.new_zeros(shape), jump, field)
        return self.head(h)[:, None], calls


def _convolution(ours: Any) -> nn.Module:
    from torch_geometric.nn import GCNConv

    width, out = ours.weight.shape
    layer = GCNConv(width, out, bias=ours.bias is not None, cached=True).to(ours.weight.device)
    with torch.no_grad():
        layer.lin.weight.copy_(ours.weight.T)
        if ours.bias is not None:
            assert layer.bias is not None
            layer.bias.copy_(ours.bias)
    return layer


def _as_matrix(edges: Tensor, nodes: int) -> Tensor:
    """A[target, source], as PyG's layers take it."""
    ones = torch.ones(edges.shape[1], device=edges.device)
    return torch.sparse_coo_tensor(edges.flip(0), ones, (nodes, nodes)).to_sparse_csr()
