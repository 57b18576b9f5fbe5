"""Any convolution of PyTorch Geometric as a field."""

import inspect
import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields.extension import Extension
from graphode.fields.structure import AttributedGraph, repeated_edges, source_of
from graphode.fields.validation import check_attributes, check_channels, check_closes, check_graph
from graphode.flows.masks import is_mapped, is_recorded, is_traced
from graphode.graphs import Graph
from graphode.graphs.validation import checked_state


class ConvField(Extension):
    """A PyG layer as the right-hand side, message passing over the graph passed in.

        dh/dt = layer(h, edge_index, edge_weight)

    Such layers normalise by themselves, so they are given the source of a normalised graph. The
    edge weights are passed where the layer's `forward` has an `edge_weight`, the attributes of an
    `AttributedGraph` as its `edge_attr`; a layer that looks at none refuses them. Leading
    dimensions of the state become copies of the graph, side by side; a layer whose `forward` has a
    `batch` (`GPSConv`) is told which node belongs to which of them. A layer with dropout draws a
    new mask at every evaluation, as it does in PyG: use it with fixed steps.

    Edges that `EdgeDropout` has dropped are left out. Under `vmap`, `torch.compile` and in CUDA
    graphs, where no shape may depend on a mask, they are passed with the weight 0 instead.

    A layer that also wants the state at the start (`x_0`: `GCN2Conv`, `FAConv`) gets it as
    channels of zero velocity, [h, x_0], which `pack` adds.

    Args:
        layer: A module whose `forward` takes `x` and `edge_index`, and which keeps the number of
            channels.
        edge_weight: Whether the layer is given the weights; by default if it takes any. Some
            refuse them when they normalise (`FAConv`).

    Shapes:
        - **h:** `[..., nodes, channels]`, twice the channels with `x_0`.
    """

    def __init__(self, layer: nn.Module, edge_weight: bool | None = None) -> None:
        super().__init__()
        self.field = layer
        named = inspect.signature(layer.forward).parameters
        self.takes_weight = "edge_weight" in named if edge_weight is None else edge_weight
        self.needs_attributes = (
            "edge_attr" in named and named["edge_attr"].default is inspect.Parameter.empty
        )
        passes_on = any(each.kind is each.VAR_KEYWORD for each in named.values())
        # A layer of PyG that could take attributes but was built for none has edge_dim = None.
        is_blind = getattr(layer, "edge_dim", 0) is None
        self.takes_attributes = ("edge_attr" in named or passes_on) and not is_blind
        self.takes_start = "x_0" in named
        self.takes_batch = "batch" in named
        _check_layer(layer, named)

    def forward(
        self,
        t: float | Tensor,
        h: Float[Tensor, "*batch nodes channels"],
        graph: Graph | AttributedGraph,
    ) -> Float[Tensor, "*batch nodes channels"]:
        """The velocity of `h`."""
        del t  # autonomous
        attributes = None
        if isinstance(graph, AttributedGraph):
            graph, attributes = graph
            if graph.source is not None:
                raise ValueError(
                    f"Edge attributes must belong to a graph that is not normalised, since "
                    f"{type(self.field).__name__} works on its source, but this one is "
                    f"({graph.kind!r}). Use `AttributedGraph(graph.source, …)`."
                )
            self._check_attributes(graph, attributes)
        elif self.needs_attributes:
            raise ValueError(
                f"{type(self.field).__name__} needs edge attributes, but the graph has none. Pass "
                f"`AttributedGraph(graph, edge_attributes)` in its place."
            )
        check_graph(self.field, graph)
        graph = source_of(graph)
        flat = checked_state(graph.flatten(h), graph)
        copies = math.prod(flat.shape[:-2])
        edge_index, weight = graph.edge_index, graph.edge_weight
        if graph._keep_mask is not None and self._can_thin(h):
            kept = graph._keep_mask.nonzero()[:, 0]
            edge_index, weight = edge_index[:, kept], weight.index_select(0, kept)
            attributes = None if attributes is None else attributes.index_select(0, kept)
        named: dict[str, Tensor] = {
            "edge_index": repeated_edges(edge_index, graph.num_nodes, copies)
        }
        if self.takes_weight:
            named["edge_weight"] = weight.to(h.dtype).repeat(copies)
        if self.takes_batch:
            start = torch.arange(copies, device=h.device)[:, None] * graph.num_graphs
            named["batch"] = (start + graph.node_graph).flatten()
        if attributes is not None:
            named["edge_attr"] = attributes.repeat(copies, 1)
        x = flat.reshape(-1, h.shape[-1])
        if self.takes_start:
            x, named["x_0"] = x.chunk(2, -1)
        channels = getattr(self.field, "in_channels", None)
        if isinstance(channels, int) and channels > 0:  # -1: it learns its width from the first
            what = f" (those of its layer {type(self.field).__name__})"
            check_channels(self, x, channels, what)
        dx = self._called(x, named)
        check_closes(
            self,
            dx,
            x,
            f"the layer {type(self.field).__name__}",
            f"Choose its channels (and heads) so that {x.shape[-1]} go in and come out.",
        )
        if self.takes_start:
            dx = torch.cat([dx, torch.zeros_like(dx)], -1)
        return dx.reshape(h.shape)

    def _check_attributes(self, graph: Graph, attributes: Tensor) -> None:
        if not self.takes_attributes:
            raise ValueError(
                f"{type(self.field).__name__} as it was built looks at no edge attributes, but was "
                f"given an `AttributedGraph`. Give it the `graph` inside, or build a layer that "
                f"takes them, such as `GATConv(…, edge_dim={attributes.shape[-1]})`."
            )
        check_attributes(graph, attributes)

    def _called(self, x: Tensor, named: dict[str, Tensor]) -> Tensor:
        if not self.takes_attributes or "edge_attr" in named:
            return self.field(x, **named)
        try:
            return self.field(x, **named)
        except (AssertionError, AttributeError, TypeError) as error:
            # Nothing in a signature tells layers that need attributes from those that can do
            # without.
            raise ValueError(
                f"{type(self.field).__name__} failed on a graph without edge attributes "
                f"({error!r}). If it needs them, pass `AttributedGraph(graph, edge_attributes)` in "
                f"its place."
            ) from error

    def _can_thin(self, h: Tensor) -> bool:
        """Whether edges that were dropped may be left out; their number is no constant."""
        if not (is_mapped() or is_traced() or is_recorded(h.device)):
            return True
        if not self.takes_weight:
            raise ValueError(
                f"{type(self.field).__name__} takes no edge weights, so that edges which "
                f"`EdgeDropout` drops must be left out, but in a program that is mapped, compiled "
                f"or recorded their number may not change. Run it as it is, or use "
                f"`AttentionField`."
            )
        return False

    def pack(self, h: Float[Tensor, "*batch nodes channels"]) -> Tensor:
        """The state, and the state at the start if the layer wants it."""
        return torch.cat([h, h], -1) if self.takes_start else h

    def unpack(self, z: Float[Tensor, "*lead nodes all_channels"]) -> Tensor:
        """The state alone."""
        return z.chunk(2, -1)[0] if self.takes_start else z


def _check_layer(layer: nn.Module, named: Any) -> None:
    name = type(layer).__name__
    if "edge_index" not in named:
        raise TypeError(
            f"ConvField needs a layer whose forward takes `x` and `edge_index`, but that of {name} "
            f"takes: {', '.join(named)}. Wrap it in a module that does."
        )
    known = {"edge_index", "edge_weight", "edge_attr", "x_0", "batch"}
    wanted = [
        key
        for position, (key, parameter) in enumerate(named.items())
        if position > 0
        and key not in known
        and parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    if wanted:
        raise TypeError(
            f"ConvField passes a state, edges, weights and attributes, but {name} also needs: "
            f"{', '.join(wanted)}. Wrap it in a module that supplies them."
        )
    if any(getattr(part, "cached", False) for part in layer.modules()):
        raise ValueError(
            f"{name} was built with `cached=True` and would keep the first graph it sees, but a "
            f"field's graph is an argument. Build it with `cached=False`."
        )
