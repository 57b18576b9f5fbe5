"""A stream of graphs: one for all, one per step, or one per sample and step."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphode.graphs import Graph


class StepGraphs:
    """The graph that each step of a batch brings.

    Args:
        graphs: A graph for all steps; a list of one per step; or a list of such lists, one per
            sample. A graph may be a `Graph.batch` with one graph per sample.
        steps: How many steps there are.
        batch_shape: Leading dimensions of the states, samples last.
    """

    def __init__(self, graphs: Any, steps: int, batch_shape: torch.Size) -> None:
        self.steps, self.batch_shape = steps, batch_shape
        self.graphs = self._per_step(graphs)

    def _per_step(self, graphs: Any) -> list[Any]:
        if not is_several(graphs):
            return [graphs] * self.steps
        if len(graphs) and is_several(graphs[0]):
            return self._per_sample(graphs)
        if len(graphs) != self.steps:
            raise ValueError(
                f"`graphs` must be one graph, or a list of one per step, {self.steps}, but the "
                f"list has {len(graphs)}. For one graph per sample use `Graph.batch`, or a list "
                f"of lists, samples first."
            )
        return list(graphs)

    def _per_sample(self, graphs: Sequence[Sequence[Graph]]) -> list[Any]:
        samples = self.batch_shape[-1] if self.batch_shape else 1
        if len(graphs) != samples or any(len(own) != self.steps for own in graphs):
            raise ValueError(
                f"`graphs` as a list of lists must have one list per sample, {samples}, each of "
                f"one graph per step, {self.steps}, but the lists have lengths "
                f"{[len(own) for own in graphs]}. Repeat the last graph in padded steps."
            )
        return [joined(step) for step in zip(*graphs, strict=True)]

    def at(self, step: int, num_nodes: int) -> Any:
        """The graph of a step, after checking that it fits the nodes of that step."""
        graph = self.graphs[step]
        check_nodes(graph, num_nodes, self.batch_shape, f" of step {step}")
        return graph


def is_several(graphs: Any) -> bool:
    """Whether it is a list of graphs; a tuple with names, as an attributed graph is, is one."""
    return type(graphs) in (list, tuple)


def joined(graphs: Sequence[Any]) -> Any:
    """The graphs of all samples as one; that graph itself where they share it."""
    first = graphs[0]
    if all(graph is first for graph in graphs):
        return first
    sizes = sorted({graph.num_nodes for graph in graphs})
    if len(sizes) > 1:
        raise ValueError(
            f"The samples of a batch must have the same number of nodes at a step, but have "
            f"{', '.join(map(str, sizes))}. Put networks of other sizes into batches of their own."
        )
    return Graph.batch(graphs)


def chosen_graphs(old: Any, new: Any, takes_new: Tensor) -> Any:
    """For each sample the new graph, or still the old one."""
    if old is new or old is None or bool(takes_new.all()):
        return new
    if not bool(takes_new.any()):
        return old
    if takes_new.ndim > 1:
        rows = takes_new.flatten(0, -2)
        if bool((rows != rows[0]).any()):
            raise ValueError(
                f"Where graphs change, all leading dimensions but the last must observe something "
                f"at the same steps, since a state knows one graph for each sample of the last, "
                f"but in a batch of shape {list(takes_new.shape)} some observe a step that others "
                f"do not. Flatten them into one dimension: `x.flatten(0, -4)`, and times and mask "
                f"likewise."
            )
        takes_new = rows[0]
    samples = len(takes_new)
    parts = [g.unbatch() if g.num_graphs > 1 else [g] * samples for g in (old, new)]
    return joined([parts[int(taken)][b] for b, taken in enumerate(takes_new.tolist())])


def check_nodes(graph: Any, num_nodes: int, batch_shape: torch.Size, where: str) -> None:
    """Refuse a graph whose nodes are not those of the step."""
    if not isinstance(graph, Graph):
        return
    count = graph.num_graphs
    if graph.num_nodes == num_nodes:
        return
    if count == 1 or set(graph.sizes) != {num_nodes}:
        sizes = ", ".join(map(str, sorted(set(graph.sizes))))
        raise ValueError(
            f"The graph{where} must have the {num_nodes} nodes of the observations, but has "
            f"{sizes}. Where nodes come and go, give `node_maps`, and the observations of each "
            f"step as a list."
        )
    if not batch_shape or batch_shape[-1] != count:
        raise ValueError(
            f"The graph{where} is a batch of {count} graphs, but the observations have batch "
            f"shape {list(batch_shape)}. Batch one graph per sample."
        )
