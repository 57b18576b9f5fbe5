"""CUDA graphs: work recorded once, then replayed without the host.

A fixed-step flow by itself, forward and backward (`Flow(capture=True)`), or a whole program such
as a training step with its optimiser and its evaluation (`capture`).
"""

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
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
    """Recordings of one flow, by shape of the state, graph and times; copies of it have none."""

    def __init__(self) -> None:
        self.recordings: dict[tuple[Any, ...], tuple[Any, Callable[..., Any]]] = {}

    def __reduce__(self) -> tuple[type["CapturedFlows"], tuple[()]]:
        return CapturedFlows, ()

    def __call__(
        self,
        march: Callable[..., Tensor],
        field: Callable[..., Tensor],
        h: Tensor,
        graph: Any,
        t0: float | Tensor | np.ndarray,
        t1: float | Tensor | np.ndarray,
    ) -> Tensor:
        """Replay the recording that fits, after making it if there is none."""
        if argument_tensors((graph, t0, t1)):
            raise ValueError(
                "`capture=True` gives gradients to the state and the field's parameters only, but "
                "the graph or a time requires a gradient. Use capture=False for this flow."
            )
        times = tuple(_key_of(t) for t in (t0, t1))
        training = isinstance(field, nn.Module) and field.training
        key = (
            h.shape, h.dtype, h.device, h.requires_grad, torch.is_grad_enabled(), id(graph),
            times, training,
        )  # fmt: skip
        if key not in self.recordings:
            t0, t1 = (
                torch.tensor(t, device=h.device) if isinstance(t, np.ndarray) else t
                for t in (t0, t1)
            )
            module = _Recordable(march, field, (graph, t0, t1)).train(training)
            sample = torch.randn_like(h).requires_grad_(h.requires_grad)
            with _without_collection(), warnings.catch_warnings():
                # Gradients are returned, not accumulated, while recording: the stream of the
                # parameters' accumulators, which torch warns about, plays no part.
                warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream")
                recording = torch.cuda.make_graphed_callables(module, (sample,))
            # The graph is kept so that its identity, part of the key, is not reused.
            self.recordings[key] = ((graph, t0, t1), recording)
        return self.recordings[key][1](h)


def _key_of(t: float | Tensor | np.ndarray) -> Any:
    """What tells one time from another: the tensor it is, or its value."""
    if isinstance(t, np.ndarray):
        return t.shape, t.dtype.str, t.tobytes()
    return id(t) if isinstance(t, Tensor) else t


def capture(
    function: Callable[[], None],
    device: torch.device | str,
    sharing: Callable[[], None] | None = None,
) -> Callable[[], None]:
    """`function` as a program: on a GPU recorded at its fourth call, and replayed from then on.

    It must work in place, on tensors of the device alone, and never ask the host: no `.item()`,
    and of adaptive solvers only those with `flow.recorded_attempts`. Its first calls run as they
    are, which is when kernels are compiled and buffers made. Each call does its work exactly
    once, recorded or not. On other devices the function itself comes back.

    Args:
        function: Takes and returns nothing.
        device: Where its tensors are.
        sharing: A program that never runs at the same time, and whose memory this one may use.
    """
    if torch.device(device).type != "cuda":
        return function
    return _Program(function, sharing if isinstance(sharing, _Program) else None)


class _Program:
    WARM_UP = 3

    def __init__(self, function: Callable[[], None], sharing: "_Program | None") -> None:
        self.function = function
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.stream = torch.cuda.Stream() if sharing is None else sharing.stream
        self.pool = torch.cuda.graph_pool_handle() if sharing is None else sharing.pool

    def __call__(self) -> None:
        if self.graph is None and self.calls < self.WARM_UP:
            self.calls += 1
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                self.function()
            torch.cuda.current_stream().wait_stream(self.stream)
            return
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            recording = torch.cuda.graph(self.graph, pool=self.pool, stream=self.stream)
            with _without_collection(), recording:
                self.function()
        self.graph.replay()


@contextmanager
def _without_collection() -> Iterator[None]:
    """Keep Python's garbage collector out, after it has run.

    A program that is no longer needed may be found by it at any moment, and to free a CUDA graph
    while another one is recorded breaks the recording.
    """
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
