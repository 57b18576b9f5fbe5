"""A fixed-step flow as a CUDA graph: recorded once, forward and backward, then replayed."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphode.flows.dependencies import argument_tensors


class _Recordable(nn.Module):
    """A flow as a module of the state alone, so that CUDA-graph capture finds its parameters."""

    def __init__(
        self, march: Callable[..., Tensor], field: Callable[..., Tensor], rest: tuple[Any, ...]
    ) -> None:
        super().__init__()
        self.march, self.field, self.rest = march, field, rest

    def forward(self, h: Tensor) -> Tensor:
        return self.march(h, *self.rest)


class CapturedFlows:
    """Recordings of one flow, by shape of the state, graph and times."""

    def __init__(self) -> None:
        self.recordings: dict[tuple[Any, ...], tuple[Any, Callable[..., Any]]] = {}

    def __call__(
        self,
        march: Callable[..., Tensor],
        field: Callable[..., Tensor],
        h: Tensor,
        graph: Any,
        t0: float | Tensor,
        t1: float | Tensor,
    ) -> Tensor:
        """Replay the recording that fits, after making it if there is none."""
        if argument_tensors((graph, t0, t1)):
            raise ValueError(
                "`capture=True` gives gradients to the state and the field's parameters only, but "
                "the graph or a time requires a gradient. Use capture=False for this flow."
            )
        times = tuple(id(t) if isinstance(t, Tensor) else t for t in (t0, t1))
        training = isinstance(field, nn.Module) and field.training
        key = (
            h.shape, h.dtype, h.device, h.requires_grad, torch.is_grad_enabled(), id(graph),
            times, training,
        )  # fmt: skip
        if key not in self.recordings:
            module = _Recordable(march, field, (graph, t0, t1)).train(training)
            sample = torch.randn_like(h).requires_grad_(h.requires_grad)
            with warnings.catch_warnings():
                # Gradients are returned, not accumulated, while recording: the stream of the
                # parameters' accumulators, which torch warns about, plays no part.
                warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream")
                recording = torch.cuda.make_graphed_callables(module, (sample,))
            # The graph is kept so that its identity, part of the key, is not reused.
            self.recordings[key] = ((graph, t0, t1), recording)
        return self.recordings[key][1](h)
