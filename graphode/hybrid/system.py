"""`HybridSystem`: between observations the state flows, at them it jumps.

Poli et al. (2019), "Graph Neural Ordinary Differential Equations", spatio-temporal models.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphode.fields.graphless import with_graph
from graphode.fields.transport import checked_flow
from graphode.flows import name_masks
from graphode.hybrid.course import Course, NodeMaps
from graphode.hybrid.node_map import NodeMap
from graphode.hybrid.parts import Part, StateParts
from graphode.hybrid.state import HybridState
from graphode.hybrid.stream import joined
from graphode.hybrid.window import Window, read_times, read_window, times_tensor


class HybridSystem(nn.Module):
    """A state that flows between arrival times, jumps at them, and is read at any time.

        dh/dt = F(t, h, G_{k−1})       t in [t_{k−1}, t_k]
        h⁺ = jump(h, x_k, G_k)         t = t_k
        y = readout(h, G)              at query times, before the jump

    Every sample has its own times. It starts at zero at its first observation. A query is
    answered from the observations strictly before it: one at t_k is read before the jump at t_k.
    Neither what comes later, nor when it comes, nor what else is asked changes an answer; with an
    adaptive solver, by more than its tolerance.

    What is under the mask is not seen: a node that is not observed at a step flows but does not
    jump, and its neighbours see zeros there. A step at which a sample observes no node is not a
    step of that sample: neither its time nor its graph is used, so series of different lengths
    are padded at will.

    Graphs are causal: a flow uses the graph known when it starts. The paper's indices have the
    graph of the time it leads to, `causal=False`.

    A compiled program, or one captured as a CUDA graph, cannot look at times and refuse them. It
    answers queries after a sample's last observation only: at others, and where the times of a
    sample do not increase, its predictions are NaN.

    Args:
        flow: A `Flow` on the part of the state that flows (all of it, for a GRU), anything called
            as flow(h, graph, t0, t1), or None to hold the state between observations.
        jump: jump(h, x, graph) → h, such as `GraphGRUCell`.
        readout: From what the readout sees (h, for an LSTM) to the prediction; None for itself.
        newcomers: From (x, graph), or x, to the state of nodes that appear; None for zeros.
        channels: Width of the state, where `jump` is not one of our cells, which know it.
        causal: Which graph the flow uses.
        by_length: Whether on a CPU samples may be solved in other company than their batch's: those
            with gaps of like length apart from the others, which then do not wait for the longest,
            and, with a fixed number of steps, several queries in one solve. For fields that hold
            no tensor with a value for each sample.

    Shapes:
        - **x:** `[*batch, steps, nodes, channels]`; a list of `[*batch, nodes, channels]`, one
          per step, where nodes come and go.
        - **times:** `[*batch, steps]`
        - **query_times:** `[*batch, queries]`
        - **y:** `[*batch, queries, nodes, out_channels]`
    """

    members_first = True  # see `Ensemble`

    def __init__(
        self,
        *,
        flow: Callable[..., Any] | None,
        jump: Callable[..., Any],
        readout: Callable[..., Any] | None = None,
        newcomers: Callable[..., Any] | None = None,
        channels: int | None = None,
        causal: bool = True,
        by_length: bool = False,
    ) -> None:
        super().__init__()
        self.parts = _parts_of(jump, channels)
        self.flow = None if flow is None else checked_flow(flow)
        self.jump = jump
        self.readout = with_graph(readout, "readout")
        self.newcomers = None if newcomers is None else with_graph(newcomers, "newcomers")
        self.causal, self.by_length = causal, by_length
        name_masks(self)

    def forward(
        self,
        x: Tensor | Sequence[Tensor],
        times: Any,
        graphs: Any,
        query_times: Any,
        mask: Tensor | Sequence[Tensor] | None = None,
        node_maps: NodeMaps | None = None,
        state: HybridState | Tensor | None = None,
    ) -> Tensor:
        """The predictions at `query_times`.

        Where nodes come and go, predictions are for the nodes of the last step, NaN for those
        that were not there at the time of the query; `observe` and `forecast` have the nodes of
        every step.

        Args:
            x: Observations.
            times: When, strictly increasing for each sample.
            graphs: One graph for all; one per step; one per sample and step, as a list of lists
                with samples first, or a `Graph.batch` per step.
            query_times: When predictions are wanted, not before the first observation.
            mask: True where observed, per step `[*batch, steps]` or per node of each step
                `[*batch, steps, nodes]`.
            node_maps: Per step a `NodeMap` from the nodes of the step before to its own, or None.
            state: What to start from instead of zeros: a `HybridState` (which flows on to the
                first observation), or a tensor, the state at the first observation.
        """
        window = read_window(x, times, mask)
        query_times = times_tensor("query_times", query_times)
        shape = query_times.shape
        queries = read_times(
            "query_times",
            query_times,
            (*window.batch_shape, shape[-1] if shape else 1),
            window.x[0],
            "one time per sample and query",
        )
        if queries.shape[-1] == 0:
            raise ValueError(
                "`query_times` must hold at least one time, but is empty. For the state after the "
                "observations use `system.absorb`."
            )
        course = self._run(window, graphs, queries, node_maps, state)
        return course.predictions()

    def absorb(
        self,
        x: Tensor | Sequence[Tensor],
        times: Any,
        graphs: Any,
        mask: Tensor | Sequence[Tensor] | None = None,
        node_maps: NodeMaps | None = None,
        state: HybridState | Tensor | None = None,
    ) -> HybridState:
        """The state after a window of observations; arguments as in a call."""
        window = read_window(x, times, mask)
        none = window.times[..., :0]
        course = self._run(window, graphs, none, node_maps, state)
        own = window.times.where(window.valid, -torch.inf)
        last = own.amax(-1)
        if isinstance(state, HybridState):
            last = torch.where(window.valid.any(-1), last, state.time.to(last))
        return HybridState(course.h, last, course.known)

    def observe(
        self,
        state: HybridState | None,
        x: Tensor,
        t: float | Tensor,
        graph: Any,
        mask: Tensor | None = None,
        node_map: NodeMap | Tensor | None = None,
    ) -> HybridState:
        """The state after one more observation: flow to `t`, then jump.

        Args:
            state: From the last call; None at the first, which starts at zero.
            x: The observation, `[*batch, nodes, channels]`.
            t: When, a number or `[*batch]`; later than the last.
            graph: The graph from now on; one per sample as a list or a `Graph.batch`.
            mask: True where observed, `[*batch, nodes]`, or `[*batch]`.
            node_map: From the nodes of `state` to those of `x`, where these are not the same.
        """
        moment = times_tensor("t", t).to(torch.float64)
        graph = joined(graph) if isinstance(graph, list) else graph
        masks = None if mask is None else [mask]
        maps = None if node_map is None else [node_map]
        return self.absorb([x], moment[..., None], [graph], masks, maps, state)

    def forecast(self, state: HybridState, t: float | Tensor) -> Tensor:
        """The prediction at `t`, from what is known now; the state is not changed.

        Args:
            state: From `observe`.
            t: A number or `[*batch]`, for a prediction `[*batch, nodes, out_channels]`; or
                `[*batch, queries]`, for `[*batch, queries, nodes, out_channels]`.
        """
        if state is None:
            raise ValueError(
                "There is no observation yet to forecast from: `state` is None. Observe one first, "
                "`state = system.observe(None, x, t, graph)`."
            )
        batch = state.h.shape[:-2]
        moments = times_tensor("t", t).to(state.h.device, state.time.dtype)
        several = moments.ndim == len(batch) + 1
        if moments.shape not in ((), batch) and not (several and moments.shape[:-1] == batch):
            raise ValueError(
                f"`t` must be a number, or have shape {list(batch)} or {[*batch, 'queries']}, but "
                f"has shape {list(moments.shape)}."
            )
        if not several:
            moments = moments.expand(batch)[..., None]
        none = state.time[..., None][..., :0]
        empty = Window([], none, none.bool(), None, batch)
        course = self._run(empty, [], moments, None, state)
        predictions = course.predictions()
        return predictions if several else predictions.select(len(batch), 0)

    def _run(self, *args: Any) -> Course:
        course = Course(self, *args)
        course.run()
        return course

    def extra_repr(self) -> str:
        """Which graph the flow uses, where it is not the default."""
        return "" if self.causal else "causal=False"


def _parts_of(jump: Any, channels: int | None) -> StateParts:
    """What the channels of the state are for; refuse what cannot be called as jump(h, x, graph)."""
    known = getattr(jump, "parts", None)
    if isinstance(known, StateParts):
        if channels not in (None, known.channels):
            raise ValueError(
                f"`channels` is the width of the state, but {type(jump).__name__} has "
                f"{known.channels}, not {channels}. Leave it out."
            )
        return known
    name = type(jump).__name__ if isinstance(jump, nn.Module) else repr(jump)
    function = jump.forward if isinstance(jump, nn.Module) else jump
    try:
        inspect.signature(function).bind("h", "x", "graph")
    except TypeError:
        raise TypeError(
            f"`jump` must be called as jump(h, x, graph), as `graphode.GraphGRUCell` is, but is "
            f"{name}. For a torch cell without a graph use `GraphGRUCell(…, gate=nn.Linear)`."
        ) from None
    if channels is None:
        raise ValueError(
            f"The width of the state is not known from {name}. Give `channels=`, or use one of "
            f"our cells."
        )
    return StateParts((Part(channels),))
