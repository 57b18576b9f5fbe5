"""`FlatGRU`: the paper's GRU, which sees all sensors as one long vector and no graph.

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", table 2: 228 speeds and two
features of time come in, 50 channels are kept, a head of two layers gives 228 speeds.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphode.flows import name_masks
from graphode.hybrid import GraphGRUCell, HybridSystem
from graphode.hybrid.gates import GateFactory
from graphode.models.dense import DenseMap


class FlatGRU(nn.Module):
    """A GRU on the observations of all nodes together; it holds its state between them.

    The cell is `GraphGRUCell` with linear gates. Nodes that are not observed are seen as zeros;
    what all nodes share is taken from the first that is.

    Args:
        nodes: How many nodes there are, always.
        in_channels: Width of a node's observation.
        channels: Width of the state.
        out_channels: Values to predict at a node.
        shared: How many of the last input channels are the same at all nodes (features of time),
            and are taken once.
        head_channels: Between the two layers of the head; the state's width by default.
        gate: `gate(in_channels, out_channels)` makes another operator than a linear layer.

    Shapes:
        - **x:** `[*batch, steps, nodes, in_channels]`
        - **y:** `[*batch, queries, nodes, out_channels]`
    """

    members_first = True  # see `Ensemble`

    def __init__(
        self,
        nodes: int,
        in_channels: int = 3,
        channels: int = 50,
        out_channels: int = 1,
        *,
        shared: int = 2,
        head_channels: int | None = None,
        gate: GateFactory = nn.Linear,
    ) -> None:
        super().__init__()
        if not 0 <= shared < in_channels:
            raise ValueError(
                f"`shared` counts the last of {in_channels} channels that are the same at all "
                f"nodes, so it must be at least 0 and below {in_channels}, but is {shared}."
            )
        self.nodes, self.in_channels, self.shared = nodes, in_channels, shared
        self.out_channels = out_channels
        between = channels if head_channels is None else head_channels
        self.system = HybridSystem(
            flow=None,
            jump=GraphGRUCell(nodes * (in_channels - shared) + shared, channels, gate=gate),
            readout=DenseMap([channels, between, nodes * out_channels], "relu"),
        )
        name_masks(self)

    def forward(
        self,
        x: Tensor,
        times: Any,
        graphs: Any,
        query_times: Any,
        mask: Tensor | None = None,
        node_maps: Sequence[Any] | None = None,
        state: Any = None,
    ) -> Tensor:
        """The predictions at `query_times`; the graphs make no difference."""
        del graphs
        if tuple(x.shape[-2:]) != (self.nodes, self.in_channels) or node_maps is not None:
            raise ValueError(
                f"This GRU sees all nodes at once, [..., {self.nodes}, {self.in_channels}], and "
                f"they stay the same, but the observations have shape {list(x.shape)}. Build it "
                f"with `nodes={x.shape[-2]}`; where nodes come and go use a graph cell."
            )
        x, mask = torch.as_tensor(x), None if mask is None else torch.as_tensor(mask)
        own, common = x.tensor_split([self.in_channels - self.shared], -1)
        once = common[..., :1, :]
        if mask is not None and mask.shape == x.shape[:-1]:
            mask = mask.to(x.device)
            first_observed = mask.to(torch.int8).argmax(-1)
            once = common.take_along_dim(first_observed[..., None, None], -2)
            own = torch.where(mask[..., None], own, 0.0)
            mask = mask.any(-1)
        flat = torch.cat([own.flatten(-2)[..., None, :], once], -1)
        y = self.system(flat, times, None, query_times, mask, None, state)
        return y.reshape(*y.shape[:-2], self.nodes, self.out_channels)
