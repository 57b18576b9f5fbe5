"""The paper's models of traffic: recurrent cells on a graph, with and without a flow between.

    GCGRU       h⁺ = GCGRU(h, x_k) at t_k,    h held between
    GCDE-GRU    the same, and dh/dt = C² ∘ tanh ∘ C¹ (h) between,    C(h) = Â (h W) + b

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", table 2 and appendix: 46
channels, dopri5, a head of two layers with ReLU. All are called as `HybridSystem` is, on a
normalised graph. The paper mentions the variants with an RNN and an LSTM.
"""

from typing import Any

from torch import nn

from graphode.fields import GraphConvField
from graphode.fields.activation import Activation
from graphode.flows import Flow
from graphode.hybrid import (
    GraphGRUCell,
    GraphLSTMCell,
    GraphRNNCell,
    HybridSystem,
    LastObservation,
    RecurrentCell,
    ResidualReadout,
)
from graphode.models.dense import DenseMap


class RecurrentModel(HybridSystem):
    """A cell, perhaps a flow, and a head of two layers.

    Args:
        cell: The jump.
        out_channels: Values to predict.
        flow: Between observations; None for none.
        head_channels: Between the two layers of the head; the cell's width by default.
        residual: Whether the head predicts the change since the node's last observation, of which
            the first `out_channels` are what is predicted.
        causal: As for `HybridSystem`.
    """

    def __init__(
        self,
        cell: RecurrentCell,
        out_channels: int,
        flow: Flow | None,
        head_channels: int | None,
        residual: bool,
        causal: bool,
    ) -> None:
        between = cell.channels if head_channels is None else head_channels
        head: nn.Module = DenseMap([cell.channels, between, out_channels], "relu")
        jump = cell
        if residual:
            jump, head = LastObservation(cell, out_channels), ResidualReadout(head, out_channels)
        # The field is ours: it holds nothing of a sample.
        super().__init__(flow=flow, jump=jump, readout=head, causal=causal, by_length=True)


class GCGRU(RecurrentModel):
    """GCGRU: a graph GRU without a flow, the discrete twin of `GCDEGRU`.

    Args:
        in_channels: Width of an observation: 3 in the paper, the speed and two features of time.
        channels: Width of the state.
        out_channels: Values to predict.
        head_channels: Between the two layers of the head; the state's width by default.
        residual: Whether the head predicts the change since a node's last observation.
        causal: As for `HybridSystem`.
        cell: Arguments of the cell, such as `bias=True`.

    Shapes:
        - **x:** `[*batch, steps, nodes, in_channels]`
        - **y:** `[*batch, queries, nodes, out_channels]`
    """

    cell_class: type[RecurrentCell] = GraphGRUCell

    def __init__(
        self,
        in_channels: int = 3,
        channels: int = 46,
        out_channels: int = 1,
        *,
        head_channels: int | None = None,
        residual: bool = False,
        causal: bool = True,
        **cell: Any,
    ) -> None:
        jump = self.cell_class(in_channels, channels, **cell)
        super().__init__(jump, out_channels, None, head_channels, residual, causal)


class GCLSTM(GCGRU):
    """`GCGRU` with an LSTM cell."""

    cell_class = GraphLSTMCell


class GCRNN(GCGRU):
    """`GCGRU` with a plain recurrent cell."""

    cell_class = GraphRNNCell


class GCDEGRU(RecurrentModel):
    """GCDE-GRU: a graph GRU whose state flows between observations.

    Args:
        in_channels: Width of an observation: 3 in the paper, the speed and two features of time.
        channels: Width of the state.
        out_channels: Values to predict.
        layers: Graph convolutions of the field.
        activation: Between them.
        final_activation: After the last.
        field_dropout: Share of the input of each layer of the field.
        head_channels: Between the two layers of the head; the state's width by default.
        residual: Whether the head predicts the change since a node's last observation.
        causal: As for `HybridSystem`.
        cell: Arguments of the cell, such as `{"bias": True}`.
        flow: Arguments of `Flow`; by default dopri5 to the authors' tolerances.

    Shapes:
        - **x:** `[*batch, steps, nodes, in_channels]`
        - **y:** `[*batch, queries, nodes, out_channels]`
    """

    cell_class: type[RecurrentCell] = GraphGRUCell

    def __init__(
        self,
        in_channels: int = 3,
        channels: int = 46,
        out_channels: int = 1,
        *,
        layers: int = 2,
        activation: str | Activation | None = "tanh",
        final_activation: str | Activation | None = None,
        field_dropout: float = 0.0,
        head_channels: int | None = None,
        residual: bool = False,
        causal: bool = True,
        cell: dict[str, Any] | None = None,
        **flow: Any,
    ) -> None:
        if layers < 1:
            raise ValueError(
                f"`layers` must be 1 or more, but is {layers}. Without a flow use the models "
                f"named GC instead of GCDE."
            )
        jump = self.cell_class(in_channels, channels, **(cell or {}))
        width = jump.parts.flow_channels
        field = GraphConvField([width] * (layers + 1), activation, final_activation, field_dropout)
        settings = {"solver": "dopri5", "rtol": 1e-3, "atol": 1e-4, **flow}
        super().__init__(
            jump, out_channels, Flow(field, **settings), head_channels, residual, causal
        )


class GCDELSTM(GCDEGRU):
    """GCDE-LSTM: `GCDEGRU` with an LSTM cell.

    Its c flows too, unless it is held: `GCDELSTM(cell={"cell_flows": False})`.
    """

    cell_class = GraphLSTMCell


class GCDERNN(GCDEGRU):
    """GCDE-RNN: `GCDEGRU` with a plain recurrent cell."""

    cell_class = GraphRNNCell
