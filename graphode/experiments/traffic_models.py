"""The models of table 2 by name, built from a run's settings."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphode.experiments.traffic import TrafficForecast
from graphode.experiments.traffic_anchor import Anchored, ChangeReadout
from graphode.experiments.traffic_gates import (
    Dropping,
    OwnAndNeighbours,
    OwnAndNeighboursField,
)
from graphode.experiments.traffic_presets import FLOWS
from graphode.fields import GraphConvField
from graphode.flows import Flow
from graphode.hybrid import HybridSystem
from graphode.hybrid.gates import GateConvolution
from graphode.models import GCDEGRU, GCDELSTM, GCDERNN, GCGRU, GCLSTM, GCRNN, FlatGRU
from graphode.models.dense import DenseMap

FLOWING = dict(zip(FLOWS, (GCDEGRU, GCDELSTM, GCDERNN), strict=True))
CHANNELS = 3  # of an observation: speed, gap, sine of the time of day
HELD = {"gcgru": GCGRU, "gclstm": GCLSTM, "gcrnn": GCRNN}


def builder(config: TrafficForecast, sensors: int, outputs: int) -> Callable[[int], nn.Module]:
    """`build(seed)` of the configured model; the ensemble seeds the generator around it.

    Args:
        outputs: Of a model that holds its state, by `traffic_data.num_outputs`.
    """

    def build(seed: int) -> nn.Module:
        del seed
        model = _built(config, sensors, outputs)
        return _silenced(model) if config.residual else model

    return build


def _built(config: TrafficForecast, sensors: int, outputs: int) -> nn.Module:
    flow = {
        "solver": config.solver,
        "rtol": config.rtol,
        "atol": config.atol,
        "num_steps": config.num_steps,
        "gradient": config.gradient,
    }
    gates: dict[str, Any] = {"gate": functools.partial(_gate, config)}
    if config.model in FLOWING:
        return _flowing(config, gates, flow)
    if config.model == "gru":
        flat = FlatGRU(sensors, channels=config.hidden, out_channels=outputs, **gates)
        return DirectForecast(flat, outputs, config.residual)
    held = HELD[config.model]
    if outputs == 1:
        return held(CHANNELS, config.hidden, residual=config.residual, **gates)
    inner = held(CHANNELS, config.hidden, outputs, **gates)
    return DirectForecast(inner, outputs, config.residual)


def _gate(config: TrafficForecast, in_channels: int, out_channels: int) -> nn.Module:
    """The operator of a cell's gates, side by side in channels."""
    if config.model == "gru":
        gate: nn.Module = nn.Linear(in_channels, out_channels)
    elif config.separate:
        gate = OwnAndNeighbours(in_channels, out_channels)
    else:
        count = out_channels // config.hidden
        gate = GateConvolution(in_channels, out_channels, bias=False, gates=count)
    return Dropping(gate, config.dropout) if config.dropout else gate


def _flowing(config: TrafficForecast, gates: dict[str, Any], flow: dict[str, Any]) -> nn.Module:
    """The paper's model as it is, or with what the tuned settings put in its parts' places."""
    kind = FLOWING[config.model]
    if not config.separate and not config.residual:
        return kind(CHANNELS, config.hidden, field_dropout=config.dropout, cell=gates, **flow)
    cell = kind.cell_class(CHANNELS, config.hidden, **gates)
    widths = [cell.parts.flow_channels] * 3
    field = (
        OwnAndNeighboursField(widths, config.dropout)
        if config.separate
        else GraphConvField(widths, "tanh", dropout=config.dropout)
    )
    head = DenseMap([config.hidden, config.hidden, 1], "relu")
    return HybridSystem(
        flow=Flow(field, **flow),
        jump=Anchored(cell) if config.residual else cell,
        readout=ChangeReadout(head) if config.residual else head,
    )


def _silenced(model: nn.Module) -> nn.Module:
    """The last layer of the head at zero: training starts from persistence, and only improves."""
    (head,) = (part for part in model.modules() if isinstance(part, DenseMap))
    for parameter in head.layers[-1].parameters():
        nn.init.zeros_(parameter)
    return model


class DirectForecast(nn.Module):
    """A model that holds its state and so cannot tell times apart: an output for each of them.

        y_q = output_q of the model    (+ the last observation of the node)

    Args:
        model: Called as `HybridSystem` is; its output has a channel for each query.
        queries: How many; with 1 all queries have one answer.
        residual: Whether the change since the last observation is what the model says.

    Shapes:
        - **x:** `[*batch, steps, nodes, in_channels]`, the quantity to forecast first
        - **y:** `[*batch, queries, nodes, 1]`
    """

    members_first = True  # see `Ensemble`

    def __init__(self, model: nn.Module, queries: int, residual: bool) -> None:
        super().__init__()
        self.model, self.queries, self.residual = model, queries, residual

    def forward(
        self, x: Tensor, times: Any, graphs: Any, query_times: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """The forecasts at `query_times`."""
        if self.queries == 1:
            y = self.model(x, times, graphs, query_times, mask)
        else:
            last = self.model(x, times, graphs, query_times[..., -1:], mask)
            y = last.movedim(-1, -3)[..., 0, :][..., None]
        return y + last_observed(x, mask) if self.residual else y


def last_observed(x: Tensor, mask: Tensor | None) -> Tensor:
    """The first channel where a node was observed last, else 0: `[*batch, 1, nodes, 1]`."""
    values = x[..., :1]
    if mask is None:
        return values[..., -1:, :, :]
    number = torch.arange(1, x.shape[-3] + 1, device=x.device)[:, None]
    latest = torch.where(mask, number, 0).amax(-2, keepdim=True)[..., None]
    found = values.gather(-3, (latest - 1).clamp(min=0))
    return torch.where(latest > 0, found, 0.0)
