"""A state through a flow: packed for its field before, unpacked after.

    h → pack → flow → unpack → h

What may stand for a flow is decided here too, once, from the signature.
"""

import inspect
from typing import Any

from torch import Tensor, nn

from graphode.fields.extension import pack, unpack
from graphode.flows import Flow


def transport(
    flow: Any, h: Tensor, graph: Any, t0: float | Tensor = 0.0, t1: float | Tensor = 1.0
) -> Tensor:
    """The state at `t1`, whatever else the field of the flow carries along.

    Args:
        flow: A `Flow`, or anything called as flow(h, graph, t0, t1).
        h: The state at `t0`.
        graph: The graph of the field.
        t0: Start, a number or one value per sample.
        t1: End, likewise.
    """
    field = getattr(flow, "field", None)
    return unpack(field, flow(pack(field, h), graph, t0, t1))


def checked_flow(flow: Any) -> Any:
    """Refuse fields, which are given to a `Flow` first, and flows along what is no field."""
    if isinstance(flow, Flow):
        _check_field(flow.field)
        return flow
    if callable(flow):
        function = flow.forward if isinstance(flow, nn.Module) else flow
        try:
            inspect.signature(function).bind("h", "graph", "t0", "t1")
        except TypeError:
            pass
        else:
            return flow
    what = type(flow).__name__ if isinstance(flow, nn.Module) else repr(flow)
    raise TypeError(
        f"`flow` must be a `graphode.Flow`, or be called as flow(h, graph, t0, t1), but is "
        f"{what}. A field becomes a flow by `graphode.Flow(field, solver='dopri5')`."
    )


def _check_field(field: Any) -> None:
    """Refuse a layer of PyTorch Geometric, called as layer(x, edge_index)."""
    function = field.forward if isinstance(field, nn.Module) else field
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # none is known
        return
    if "edge_index" in names[:2]:
        name = getattr(field, "__name__", type(field).__name__)
        raise TypeError(
            f"A field is called as field(t, h, graph), but {name} takes "
            f"({', '.join(names[:3])}). A layer of PyTorch Geometric becomes a field by "
            f"`graphode.ConvField(layer)`."
        )
