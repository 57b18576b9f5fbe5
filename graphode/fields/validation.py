"""What fields refuse, said once: what was expected, what came, what to do."""

from typing import Any

import torch
from torch import Tensor, nn

from graphode.fields.structure import AttributedGraph
from graphode.graphs import Graph
from graphode.graphs.validation import maker_of


def check_channels(field: nn.Module, h: Tensor, channels: int, what: str = "") -> None:
    """Refuse a state of another width than the field's."""
    if h.shape[-1] != channels:
        raise ValueError(
            f"{type(field).__name__} moves states of {channels} channels{what}, but the state has "
            f"{h.shape[-1]} (shape {list(h.shape)}). Encode the state to {channels} channels "
            f"first, for instance with a linear layer, or build the field for {h.shape[-1]}."
        )


def check_packed(field: nn.Module, z: Tensor, channels: int, what: str) -> None:
    """Refuse a state of another width than `pack` makes."""
    if z.shape[-1] != channels:
        raise ValueError(
            f"{type(field).__name__} moves states of {channels} channels ({what}), but the state "
            f"has {z.shape[-1]} (shape {list(z.shape)}). Make it with `gd.pack(field, h)`, and "
            f"`gd.unpack` what comes out; a `gd.GDE` does both."
        )


def check_dtype(field: nn.Module, h: Tensor, weight: Tensor | None, name: str = "field") -> None:
    """Refuse a state of another dtype than the weights, which only autocast can multiply."""
    if weight is None or h.dtype == weight.dtype or torch.is_autocast_enabled(h.device.type):
        return
    other = f", or `{name}.to({h.dtype})`" if h.dtype.is_floating_point else ""
    raise TypeError(
        f"The state must have the dtype of {type(field).__name__}, {weight.dtype}, but it has "
        f"{h.dtype}. Use `h.to({weight.dtype})`{other}."
    )


def check_graph(field: nn.Module, graph: Any) -> None:
    """Refuse what is no graph, such as the edges alone, or more than a graph."""
    if isinstance(graph, AttributedGraph):
        raise TypeError(
            f"{type(field).__name__} looks at no edge attributes, but was given an "
            f"`AttributedGraph`. Give it the `graph` inside, or use `MessagePassingField` or "
            f"`ConvField`."
        )
    if not isinstance(graph, Graph):
        shape = f" of shape {list(graph.shape)}" if isinstance(graph, Tensor) else ""
        make = maker_of(graph) or "Graph(edge_index, num_nodes)"
        raise TypeError(
            f"{type(field).__name__} needs a graphode `Graph`, but was given a "
            f"{type(graph).__name__}{shape}. Make one with `{make}`, and pass it along with the "
            f"state: `flow(h, graph)`."
        )


def check_attributes(graph: Graph, attributes: Tensor) -> None:
    """Refuse edge attributes that are not one row for each edge."""
    if attributes.dim() != 2 or attributes.shape[0] != graph.num_edges:
        raise ValueError(
            f"Edge attributes must have shape [{graph.num_edges}, attributes], one row for each "
            f"edge of the graph, but have shape {list(attributes.shape)}. A normalised graph has "
            f"self-loops too: give attributes for `graph.edge_index` as it is."
        )


def check_closes(field: nn.Module, dh: Tensor, h: Tensor, what: str, remedy: str) -> None:
    """Refuse a velocity that has not the shape of the state."""
    if dh.shape != h.shape:
        raise ValueError(
            f"{type(field).__name__} maps a state to its own velocity, so {what} must keep the "
            f"shape {list(h.shape)}, but returned {list(dh.shape)}. {remedy}"
        )


def check_positive(name: str, value: int, remedy: str, least: int = 1) -> None:
    """Refuse a count below 1, or below `least`."""
    if value < least:
        raise ValueError(f"`{name}` must be {least} or more, but is {value}. {remedy}")


def check_widths(**widths: int) -> None:
    """Refuse numbers of channels below 1."""
    for name, width in widths.items():
        check_positive(name, width, "It is a number of channels.")
