"""General message passing as a field.

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", appendix A, GMDE; Gilmer,
Schoenholz, Riley, Vinyals, Dahl (2017), "Neural Message Passing for Quantum Chemistry".
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from graphode.fields.structure import AttributedGraph
from graphode.fields.validation import check_attributes, check_closes, check_dtype, check_graph
from graphode.graphs import Graph
from graphode.graphs.validation import checked_state


class MessagePassingField(nn.Module):
    """The right-hand side of a GMDE: messages along the edges, summed, then mapped.

        dh_v/dt = g[Σ_{u→v} w_uv m([h_v, h_u, e_uv])]

    or, with `relative`, m([h_v, h_u − h_v, e_uv]). The paper sums over neighbours in either
    direction and has no weights; here messages run along the edges as the graph directs them,
    times the weights of the graph passed in, which are 1 unless given.

    Args:
        message: m, any module of one tensor, from 2 · channels (and the edge attributes) to the
            width of a message.
        update: g, from the width of a message to the state's channels; None for the identity.
        relative: Whether m sees differences of states: no change when all states are shifted, if
            the first half is ignored.
        see_target: Whether m sees h_v at all; without it, m([h_u, e_uv]) or m([h_u − h_v, e_uv]).

    Shapes:
        - **h:** `[..., nodes, channels]`; the velocity has the same shape.
        - **graph:** a `Graph`, or an `AttributedGraph` whose attributes m then sees.
    """

    def __init__(
        self,
        message: Callable[[Tensor], Tensor],
        update: Callable[[Tensor], Tensor] | None = None,
        *,
        relative: bool = False,
        see_target: bool = True,
    ) -> None:
        super().__init__()
        self.message: Any = message
        self.update: Any = update
        self.relative = relative
        self.see_target = see_target

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
            check_attributes(graph, attributes)
        check_graph(self, graph)
        flat = checked_state(graph.flatten(h), graph)
        source, target = graph.edge_index
        there, here = flat.index_select(-2, source), flat.index_select(-2, target)
        seen = [there - here if self.relative else there]
        if self.see_target:
            seen.insert(0, here)
        if attributes is not None:
            seen.append(attributes.to(h.dtype).expand(*flat.shape[:-2], *attributes.shape))
        shown = torch.cat(seen, -1)
        _check_message(self, shown, h)
        messages = self.message(shown) * graph.edge_weight.to(h.dtype)[:, None]
        zeros = messages.new_zeros(*flat.shape[:-1], messages.shape[-1])
        summed = zeros.index_add(-2, target, messages)
        dh = summed if self.update is None else self.update(summed)
        check_closes(
            self,
            dh,
            flat,
            "the update (or the message, without one)",
            f"Let its last layer have {h.shape[-1]} channels.",
        )
        return dh.reshape(h.shape)


def _check_message(field: MessagePassingField, shown: Tensor, h: Tensor) -> None:
    """Refuse what a message that begins with a linear layer cannot take."""
    message = field.message
    first = message[0] if isinstance(message, nn.Sequential) and len(message) else message
    if not isinstance(first, nn.Linear):
        return
    check_dtype(field, h, first.weight)
    if first.in_features != shown.shape[-1]:
        raise ValueError(
            f"The message of MessagePassingField sees {shown.shape[-1]} channels an edge, with a "
            f"state of shape {list(h.shape)}, but takes {first.in_features}. Build it for "
            f"{shown.shape[-1]}, or encode the state to another width first."
        )
