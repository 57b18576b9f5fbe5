"""`GDE`: encoder, flow and readout make a model.

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", section 2.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from graphode.fields import pack
from graphode.fields.graphless import with_graph
from graphode.fields.transport import checked_flow, transport
from graphode.flows import Flow, Solution, name_masks
from graphode.flows.flow import layout_of
from graphode.flows.problem import Times, read_interval
from graphode.flows.stochastic import samples_in_a_row
from graphode.models.sparse_features import SparseFeatures


class GDE(nn.Module):
    """A graph neural ODE, from features to predictions.

        h(t0) = encoder(x, graph),    dh/dt = F(t, h, graph),    y = readout(h(t1), graph)

    Encoder and readout receive the graph; those that take one tensor (`nn.Linear`) are wrapped.
    A field that carries more than the state (`Controlled`, `Augmented` …) is packed before the
    flow and unpacked after it.

    Args:
        encoder: From features to the state; None for the features themselves.
        flow: A `Flow`, or anything called as flow(h, graph, t0, t1).
        readout: From the state to the prediction; None for the state itself.
        t0: Start of the flow.
        t1: Its end: the depth of the model. Both may have one value per sample, `[*batch]`.

    Shapes:
        - **x:** `[*batch, nodes, features]`, or `SparseFeatures` where the encoder takes them.
        - **y:** whatever the readout makes of `[*batch, nodes, channels]`.
    """

    members_first = True  # see `Ensemble`

    def __init__(
        self,
        *,
        encoder: Callable[..., Any] | None = None,
        flow: Callable[..., Any],
        readout: Callable[..., Any] | None = None,
        t0: float | Tensor = 0.0,
        t1: float | Tensor = 1.0,
    ) -> None:
        super().__init__()
        self.encoder = with_graph(encoder, "encoder")
        self.flow = checked_flow(flow)
        self.readout = with_graph(readout, "readout")
        self.t0, self.t1 = t0, t1
        name_masks(self)

    def forward(self, x: Tensor | SparseFeatures, graph: Any) -> Tensor:
        """The prediction."""
        h = transport(self.flow, self.encode(x, graph), graph, self.t0, self.t1)
        with samples_in_a_row(layout_of(h, graph)):
            return self.readout(h, graph)

    def encode(self, x: Tensor | SparseFeatures, graph: Any) -> Tensor:
        """The state at `t0`."""
        if not isinstance(x, Tensor):
            return self.encoder(x, graph)
        with samples_in_a_row(layout_of(x, graph)):
            return self.encoder(x, graph)

    def solve(
        self,
        x: Tensor | SparseFeatures,
        graph: Any,
        times: Times | None = None,
        **options: Any,
    ) -> Solution:
        """The path of the embedding, with its cost; see `Flow.solve`.

        The states of a field that carries more than the embedding are whole: take the embedding
        with `graphode.unpack(model.flow.field, solution.states)`.

        Args:
            times: Output times; from `t0` to `t1` by default.
            options: Further arguments of `Flow.solve`.
        """
        if not isinstance(self.flow, Flow):
            raise TypeError(
                f"`solve` needs a `graphode.Flow` inside the model, but it has a "
                f"{type(self.flow).__name__}, which gives its end state only. Call the model."
            )
        z = pack(self.flow.field, self.encode(x, graph))
        if times is None:
            times = read_interval(self.t0, self.t1, layout_of(z, graph))
        return self.flow.solve(z, graph, times, **options)

    def extra_repr(self) -> str:
        """The interval."""
        return f"t0={self.t0}, t1={self.t1}"
