"""COVID-19 in England: a stream of states and graphs, {(X_t, G_t)}, with a new graph every day.

Panagopoulos, Nikolentzos, Vazirgiannis (2021), "Transfer Graph Neural Networks for Pandemic
Forecasting", in the form of PyTorch Geometric Temporal: new cases in 129 regions on 61 days, and on
each day how many people moved from region to region (those who stayed are self-loops).
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from graphode.data.catalogue import find_source
from graphode.data.store import read_file
from graphode.graphs import Graph

NUM_DAYS, NUM_REGIONS = 61, 129


@dataclasses.dataclass(frozen=True)
class GraphStream:
    """States on graphs, one after the other; iterating gives the pairs (X_t, G_t).

    Args:
        name: Of the data set.
        states: `[time, nodes, channels]`.
        graphs: One for each time, all of the same nodes; not normalised.
        times: Of the states, increasing.
        checksums: sha256 of every file that was read, by name.
    """

    name: str
    states: Float[Tensor, "time nodes channels"]
    graphs: tuple[Graph, ...]
    times: Float[Tensor, " time"]
    checksums: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        steps, nodes, _ = self.states.shape
        if not len(self.graphs) == len(self.times) == steps:
            raise ValueError(
                f"There must be a graph and a time for each of the {steps} states, but there are "
                f"{len(self.graphs)} graphs and {len(self.times)} times."
            )
        if not bool((self.times.diff() > 0).all()):
            raise ValueError("`times` must increase strictly. Sort the states and their graphs.")
        for step, graph in enumerate(self.graphs):
            if graph.num_nodes != nodes:
                raise ValueError(
                    f"Every graph must have the {nodes} nodes of the states, but that of step "
                    f"{step} has {graph.num_nodes}."
                )

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, step: int) -> tuple[Float[Tensor, "nodes channels"], Graph]:
        return self.states[step], self.graphs[step]

    def __iter__(self) -> Iterator[tuple[Float[Tensor, "nodes channels"], Graph]]:
        return (self[step] for step in range(len(self)))


def england_covid(root: Path | str | None = None, allow_download: bool = True) -> GraphStream:
    """New cases `[61, 129, 1]`, and people who moved from source to target, day by day."""
    source = find_source("england_covid")
    (file,) = source.files
    content = json.loads(read_file(source, file.name, root, allow_download))
    states = torch.tensor(content["y"], dtype=torch.get_default_dtype())
    if states.shape != (NUM_DAYS, NUM_REGIONS):
        raise ValueError(
            f"{file.name} must hold {NUM_DAYS} days of {NUM_REGIONS} regions, but holds "
            f"{list(states.shape)}."
        )
    moved = content["edge_mapping"]
    # The days are keys in no order.
    graphs = tuple(_graph(moved, str(day)) for day in range(NUM_DAYS))
    return GraphStream(
        "england_covid",
        states[:, :, None],
        graphs,
        torch.arange(NUM_DAYS, dtype=torch.float64),
        {file.name: file.sha256},
    )


def _graph(moved: dict[str, Any], day: str) -> Graph:
    edges = torch.tensor(moved["edge_index"][day]).t()
    people = torch.tensor(moved["edge_weight"][day], dtype=torch.get_default_dtype())
    return Graph(edges, NUM_REGIONS, people)
