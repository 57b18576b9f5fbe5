"""What a graph accepts, said once: every error names what was expected, what came, what to do."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from graphode.graphs.graph import Graph

ArrayLike = Tensor | np.ndarray | Sequence[Any]


def as_tensor(values: ArrayLike) -> Tensor:
    """Numbers as a tensor, also of an array that is read-only or runs backwards."""
    if isinstance(values, np.ndarray):
        runs_forwards = all(stride >= 0 for stride in values.strides)
        values = values if values.flags.writeable and runs_forwards else values.copy()
    return torch.as_tensor(values)


def as_floats(values: ArrayLike) -> Tensor:
    """Numbers as a floating tensor: arrays and lists may be given too, and whole numbers."""
    values = as_tensor(values)
    return values if values.is_floating_point() else values.to(torch.get_default_dtype())


def checked_positions(positions: ArrayLike) -> Tensor:
    """`positions` as a floating tensor [*batch, nodes, dims]."""
    positions = as_floats(positions)
    if positions.dim() < 2:
        raise ValueError(
            f"`positions` must have shape [*batch, nodes, dims], but their shape is "
            f"{list(positions.shape)}. For nodes on a line give `positions[:, None]`."
        )
    return positions


def checked_num_nodes(num_nodes: Any) -> int:
    """`num_nodes` as a plain integer."""
    try:
        is_count = not isinstance(num_nodes, bool) and 0 <= int(num_nodes) == num_nodes
    except (TypeError, ValueError, OverflowError, RuntimeError):  # in int's own words
        is_count = False
    if not is_count:
        raise ValueError(
            f"`num_nodes` must be a whole number, 0 or more, but it is {num_nodes!r}. "
            "Give the number of nodes, isolated ones included."
        )
    return int(num_nodes)


def maker_of(graph: Any) -> str | None:
    """The call that makes a `Graph` of what another library calls one; None of anything else."""
    makers = {
        "edge_index": "Graph.from_pyg(data)",
        "adjacency": "Graph.from_networkx(g)",
        "tocoo": "Graph.from_scipy(a)",
    }
    return next((maker for name, maker in makers.items() if hasattr(graph, name)), None)


def checked_edge_index(edge_index: ArrayLike, num_nodes: int) -> Tensor:
    """`edge_index` as an int64 tensor [2, edges] whose entries are nodes."""
    if (maker := maker_of(edge_index)) is not None:
        raise TypeError(
            f"`edge_index` must be numbers of nodes [2, edges], but is a "
            f"{type(edge_index).__name__}. Use `{maker}`."
        )
    edge_index = as_tensor(edge_index)
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        hint = (
            "Transpose it: `edge_index.t()`."
            if tuple(edge_index.shape[1:]) == (2,)
            else (
                "Stack the sources over the targets: `torch.stack([source, target])`; "
                "a graph without edges has shape [2, 0]."
            )
        )
        raise ValueError(
            f"`edge_index` must have shape [2, edges], sources over targets, but its shape is "
            f"{list(edge_index.shape)}. {hint}"
        )
    is_number = edge_index.dtype.is_floating_point or edge_index.dtype.is_complex
    if (is_number or edge_index.dtype == torch.bool) and edge_index.numel() > 0:
        raise TypeError(
            f"`edge_index` must hold integers (node numbers), but its dtype is "
            f"{edge_index.dtype}. Convert it with `edge_index.long()`; for an adjacency matrix "
            "use `Graph.from_dense`."
        )
    edge_index = edge_index.long()
    if edge_index.numel() > 0:
        low, high = (int(bound) for bound in torch.aminmax(edge_index))
        if low < 0:
            raise ValueError(
                f"`edge_index` must hold node numbers from 0 to {num_nodes - 1}, but it holds the "
                f"negative {low}. Number the nodes from 0 and drop padded edges."
            )
        if high >= num_nodes:
            raise ValueError(
                f"`edge_index` must hold node numbers below `num_nodes` = {num_nodes}, but it "
                f"holds {high}. Give `num_nodes={high + 1}` or more, or renumber the nodes from 0."
            )
    return edge_index


def checked_edge_weight(edge_weight: ArrayLike | None, edge_index: Tensor) -> Tensor:
    """`edge_weight` as a floating tensor [edges]; ones where None came."""
    edges = edge_index.shape[1]
    if edge_weight is None:
        return torch.ones(edges, dtype=torch.get_default_dtype(), device=edge_index.device)
    edge_weight = as_tensor(edge_weight)
    if edge_weight.dim() != 1 or edge_weight.numel() != edges:
        raise ValueError(
            f"`edge_weight` must have shape [{edges}], one weight for each edge of `edge_index`, "
            f"but its shape is {list(edge_weight.shape)}. Give the weights in the order of the "
            "edges, or None for ones."
        )
    if edge_weight.dtype.is_complex:
        raise TypeError(
            f"`edge_weight` must be real, but its dtype is {edge_weight.dtype}. Use two graphs, "
            "for the real and the imaginary part."
        )
    if edge_weight.device != edge_index.device:
        raise ValueError(
            f"`edge_weight` must be on the device of `edge_index`, {edge_index.device}, but it is "
            f'on {edge_weight.device}. Move one of them, or use `Graph.to("{edge_weight.device}")` '
            "afterwards."
        )
    if not edge_weight.dtype.is_floating_point:
        edge_weight = edge_weight.to(torch.get_default_dtype())
    return edge_weight


def own_weight(edge_weight: Tensor) -> Tensor:
    """A copy that nobody else can change, unless the weights are shared with who trains them."""
    return edge_weight if is_shared(edge_weight) else edge_weight.clone()


def is_shared(edge_weight: Any) -> bool:
    """Whether weights learn, now or when a parameter that is frozen is thawed."""
    return getattr(edge_weight, "requires_grad", False) or isinstance(edge_weight, nn.Parameter)


def check_dtype(dtype: torch.dtype) -> None:
    """Refuse a dtype that weights cannot have."""
    if not dtype.is_floating_point:
        raise TypeError(
            f"`dtype` must be a real floating type, but it is {dtype}. Edge weights multiply "
            "states: choose the dtype of the states."
        )


def check_finite(edge_weight: Tensor, edge_index: Tensor) -> None:
    """Refuse weights that are not finite."""
    finite = torch.isfinite(edge_weight.detach())
    if not bool(finite.all()):
        k = int((~finite).nonzero()[0])
        source, target = edge_index[:, k].tolist()
        raise ValueError(
            f"`edge_weight` must be finite, but edge {k} ({source} → {target}) has weight "
            f"{edge_weight[k].item()}; {int((~finite).sum())} of {len(finite)} are not finite. "
            "Drop these edges, or repair their weights."
        )


def merge_duplicates(edge_index: Tensor, edge_weight: Tensor, num_nodes: int):
    """Edges given more than once become one, at their first place, with the sum of the weights."""
    key = edge_index[1] * num_nodes + edge_index[0]
    if bool((key[1:] > key[:-1]).all()):
        return edge_index, edge_weight
    distinct, place = torch.unique(key, return_inverse=True)
    surplus = key.numel() - distinct.numel()
    if surplus == 0:
        return edge_index, edge_weight
    positions = torch.arange(key.numel(), device=key.device)
    first = torch.full_like(distinct, key.numel()).scatter_reduce_(0, place, positions, "amin")
    order = first.argsort()
    rank = torch.empty_like(order).index_copy_(
        0, order, torch.arange(len(order), device=key.device)
    )
    merged = edge_weight.new_zeros(len(order)).index_add(0, rank[place], edge_weight)
    warnings.warn(
        f"{surplus} of {key.numel()} edges repeat an earlier one; their weights are summed. Merge "
        "them beforehand (for instance `torch_geometric.utils.coalesce`) if that is not meant.",
        UserWarning,
        stacklevel=3,
    )
    return edge_index[:, first[order]], merged


def checked_state(h: Tensor, graph: Graph) -> Tensor:
    """`h` if it is a state on the graph's nodes."""
    if not isinstance(h, Tensor) or h.layout != torch.strided:
        came = (
            f"a tensor of layout {h.layout}" if isinstance(h, Tensor) else f"a {type(h).__name__}"
        )
        remedy = "h.to_dense()" if isinstance(h, Tensor) else "torch.as_tensor(h)"
        raise TypeError(
            f"The state must be a dense tensor, but it is {came}. Convert it with `{remedy}`."
        )
    if h.dim() < 2 or h.shape[-2] != graph.num_nodes:
        batch = ""
        if graph.num_graphs > 1:
            batch = f" in all, the batch of {graph.num_graphs} graphs having {_listed(graph.sizes)}"
        raise ValueError(
            f"The state must have shape [..., nodes, channels] with {graph.num_nodes} nodes, "
            f"as the graph has{batch}, but its shape is {list(h.shape)}. Put nodes second to "
            "last, or use the graph that the state lives on."
        )
    if h.device != graph.edge_weight.device:
        raise ValueError(
            f"The state must be on the graph's device, {graph.device}, but it is on {h.device}. "
            f'Move the graph once with `graph.to("{h.device}")`.'
        )
    if not h.dtype.is_floating_point:
        raise TypeError(
            f"The state must have a real floating dtype, but it has {h.dtype}. Convert it with "
            "`h.to(torch.get_default_dtype())`."
        )
    return h


def _listed(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes[:5])) + (", …" if len(sizes) > 5 else "")
