"""The way of a batch through a window of observations: flow, take the nodes, jump, answer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphode.hybrid.legs import travel
from graphode.hybrid.node_map import NodeMap, checked_map, read_node_maps
from graphode.hybrid.schedule import Leg, plan, traced_plan
from graphode.hybrid.state import HybridState
from graphode.hybrid.stream import StepGraphs, chosen_graphs
from graphode.hybrid.validation import check_dtype
from graphode.hybrid.window import Window, is_traced

if TYPE_CHECKING:
    from graphode.hybrid.system import HybridSystem

NodeMaps = Sequence[NodeMap | Tensor | None]


class Course:
    """Where a batch stands, and what it has answered so far.

    Args:
        system: Flow, jump and readout.
        window: The observations.
        graphs: As for `HybridSystem`.
        queries: `[*batch, queries]`
        node_maps: As for `HybridSystem`.
        state: Where to start.

    Attributes:
        h: The state now.
        graph: The graph now.
        known: The graph that each sample knows, which has not moved on where it rests; kept where
            there are no queries, so that a state is what is wanted.
        answers: The predictions for each query; those of samples still to come mean nothing yet.
    """

    def __init__(
        self,
        system: "HybridSystem",
        window: Window,
        graphs: Any,
        queries: Tensor,
        node_maps: NodeMaps | None,
        state: HybridState | Tensor | None,
    ) -> None:
        self.system, self.window, self.batch = system, window, window.batch_shape
        if window.x:
            check_dtype(window.x[0], system.jump)
        if node_maps is not None and not system.causal:
            raise ValueError(
                "`node_maps` need `causal=True`: a flow towards a time would use a graph whose "
                "nodes are not there yet."
            )
        self.stream = StepGraphs(graphs, len(window), self.batch)
        self.maps = read_node_maps(node_maps, len(window))
        self.h, self.graph = self._start(state)
        self.known = self.graph
        self.answers: list[Tensor | None] = [None] * queries.shape[-1]
        self.starts_anew = not isinstance(state, HybridState)
        self.starts_at_zero = state is None
        origin = state.time if isinstance(state, HybridState) else None
        planned = traced_plan if is_traced(self.h) else plan
        self.schedule = planned(origin, window.times, window.valid, queries, system.causal)

    def run(self) -> None:
        """Through all steps, to the last query."""
        if self.window.observed is not None and self.starts_anew and self.schedule.after[0]:
            self.graph = self._graph_at_start()
        self._travel(self.schedule.after[0])
        for step in range(len(self.window)):
            self._take_nodes(step)
            self._travel(self.schedule.before[step + 1])
            self._jump(step)
            self._travel(self.schedule.after[step + 1])

    def predictions(self) -> Tensor:
        """`[*batch, queries, nodes, out_channels]`, NaN where the schedule cannot answer."""
        answers: Sequence[Tensor | None] = self.answers
        if 0 in self.batch:  # nobody has asked on the way
            answers = self._read([self.system.parts.seen(self.h)] * len(answers))
        known = [answer for answer in answers if answer is not None]
        y = torch.stack(known, len(self.batch))
        answered = self.schedule.answered
        if answered is None:
            return y
        wide = answered.reshape(answered.shape + (1,) * (y.ndim - answered.ndim))
        return torch.where(wide, y, torch.nan)

    def _start(self, state: HybridState | Tensor | None) -> tuple[Tensor, Any]:
        channels = self.system.parts.channels
        if isinstance(state, HybridState):
            h, graph = state.h, state.graph
        else:
            if self.maps[0] is not None:
                raise ValueError(
                    "The first of `node_maps` leads from the nodes of `state`, but no state was "
                    "given. Use None there."
                )
            x = self.window.x[0]
            graph = self.stream.at(0, x.shape[-2])
            h = x.new_zeros(*x.shape[:-1], channels) if state is None else state
        if h.shape[:-2] != self.batch or h.shape[-1] != channels:
            raise ValueError(
                f"`state` must have shape {[*self.batch, 'nodes', channels]}, but has shape "
                f"{list(h.shape)}. A state belongs to the system, and to the batch, that made it."
            )
        return h, graph

    def _graph_at_start(self) -> Any:
        """Of each sample's first observation; of step 0 where nodes change before that."""
        graph, nodes = self.graph, self.h.shape[-2]
        changes = [step for step, change in enumerate(self.maps) if change is not None]
        for step in reversed(range(min([*changes, len(self.window)]))):
            graph = chosen_graphs(graph, self.stream.at(step, nodes), self.window.valid[..., step])
        return graph

    def _take_nodes(self, step: int) -> None:
        """The nodes and the graph of a step."""
        x = self.window.x[step]
        change = checked_map(self.maps[step], self.h.shape[-2])
        nodes = self.h.shape[-2] if change is None else change.num_after
        if x.shape[-2] != nodes and change is not None:
            raise ValueError(
                f"Step {step} observes {x.shape[-2]} nodes, but its node map leads from "
                f"{change.num_before} nodes to {nodes}. The index of a `NodeMap` has one entry per "
                f"node that the step observes."
            )
        if x.shape[-2] != nodes:
            raise ValueError(
                f"Step {step} observes {x.shape[-2]} nodes, but the state has {nodes}. Where nodes "
                f"come and go, give a `NodeMap` for the step."
            )
        self.graph = self.stream.at(step, nodes)
        if change is None:
            return
        self._check_change(step)
        self.h = change.apply(self.h, self._newcomers(step) if len(change.added) else 0.0)
        self.known = self.graph
        self.answers = [
            answer if answer is None else change.apply(answer, torch.nan) for answer in self.answers
        ]

    def _check_change(self, step: int) -> None:
        """Refuse a state whose nodes change before its sample has flown as far as the change."""
        if self.answers or self.window.observed is None or is_traced(self.h):
            return
        is_left_behind = ~self.window.valid[..., step:].any(-1).flatten()
        if bool(is_left_behind.any()):
            raise ValueError(
                f"The nodes change at step {step}, but sample {int(is_left_behind.nonzero()[0])} "
                f"observes nothing then or later: its state would change its nodes before it has "
                f"flown to that time. Give the node map with its next observation; samples whose "
                f"nodes change at other times are streamed by themselves."
            )

    def _newcomers(self, step: int) -> Tensor | float:
        """What newcomers start from: zeros, as all do, in samples that have observed nothing."""
        if self.system.newcomers is None:
            return 0.0
        first = self.system.newcomers(self.window.x[step], self.graph)
        if first.shape[-1] != self.system.parts.channels:
            raise ValueError(
                f"`newcomers` must give the {self.system.parts.channels} channels of the state, "
                f"but gives {first.shape[-1]}."
            )
        if self.window.observed is None:
            return first
        return torch.where(self._has_begun(step)[..., None, None], first, 0.0)

    def _has_begun(self, step: int) -> Tensor:
        """Which samples have a state before a step, `[*batch]`; it must be one that they observe.

        Else a newcomer would be encoded from zeros, and not from the sample's next observation.
        """
        valid = self.window.valid
        has_begun = torch.ones_like(valid[..., 0])
        if self.starts_at_zero:
            has_begun = valid[..., :step].any(-1)
        if is_traced(self.h):
            return has_begun
        lacks = (has_begun & ~valid[..., step] & valid[..., step:].any(-1)).flatten()
        if bool(lacks.any()):
            raise ValueError(
                f"`newcomers` start from what is observed when they come, but at step {step}, "
                f"where nodes come, sample {int(lacks.nonzero()[0])} observes nothing, and later "
                f"it does. Let nodes come at a step that all samples observe, or call the system "
                f"for this sample by itself, with the node map of its next observation."
            )
        return has_begun

    def _travel(self, leg: Leg | None) -> None:
        """Flow, and answer the queries on the way."""
        if leg is None:
            return
        system, parts, h = self.system, self.system.parts, self.h
        end, reached = travel(system.flow, parts.flowing(h), self.graph, leg, system.by_length)
        self.h = parts.moved(h, end)
        if not leg.columns:
            return
        predictions = self._read([parts.seen(parts.moved(h, state)) for state in reached])
        for place, (column, y) in enumerate(zip(leg.columns, predictions, strict=True)):
            before = self.answers[column]
            if leg.inside is not None and before is not None:
                mine = leg.inside[..., place].reshape(
                    self.batch + (1,) * (y.ndim - len(self.batch))
                )
                y = torch.where(mine, y, before)
            self.answers[column] = y

    def _read(self, seen: list[Tensor]) -> list[Tensor]:
        """The readout at every query, at once where all samples have one graph."""
        readout, graph = self.system.readout, self.graph
        if len(seen) == 1 or getattr(graph, "num_graphs", 1) > 1:
            return [readout(h, graph) for h in seen]
        return list(readout(torch.stack(seen, -3), graph).unbind(len(self.batch)))

    def _jump(self, step: int) -> None:
        h, window = self.h, self.window
        after = self.system.jump(h, window.x[step], self.graph)
        if after.shape != h.shape:
            raise ValueError(
                f"`jump` must return a state like the one it is given, {list(h.shape)}, but "
                f"returned {list(after.shape)}."
            )
        if window.observed is None:
            self.h, self.known = after, self.graph
            return
        self.h = torch.where(window.observed[step][..., None], after, h)
        if not self.answers and not is_traced(h):
            self.known = chosen_graphs(self.known, self.graph, window.valid[..., step])
