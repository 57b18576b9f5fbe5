"""Distances between sensors: from a list of roads or from a matrix, to a graph.

A list has three columns, from, to and length (PEMS08, METR-LA); pairs it does not name are
infinitely far, unless `shortest_paths` walks along its roads. A matrix has a row and a column for
each sensor (PeMSD7).
"""

import io
import math
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

from graphode.data.speed_tables import is_number, read_numbers
from graphode.graphs import Graph, gaussian_graph, percentile_graph

# STGCN (Yu et al., 2018) keeps exp(−(d / 10 km)² / 0.1) where it is at least 0.5.
STGCN_BANDWIDTH = 10_000 * math.sqrt(0.1)
STGCN_THRESHOLD = 0.5
PAPER_PERCENTILE = 40


def traffic_graph(
    distances: Float[Tensor, "sensors sensors"],
    rule: Literal["percentile", "gaussian"] = "percentile",
    percentile: float | int = PAPER_PERCENTILE,
    bandwidth: float | int | None = None,
    threshold: float | int = STGCN_THRESHOLD,
) -> Graph:
    """The graph of the sensors, not normalised, without self-loops.

    Args:
        distances: Infinite where there is no way.
        rule: "percentile", the paper's: unweighted edges under that percentile of all distances;
            "gaussian", STGCN's: weights exp(−d² / bandwidth²) where they reach the threshold.
        bandwidth: By default the standard deviation of the distances; `STGCN_BANDWIDTH` for
            PeMSD7(M), in metres.
    """
    if rule == "percentile":
        return percentile_graph(distances, percentile)
    if rule == "gaussian":
        return gaussian_graph(distances, bandwidth, threshold)
    raise ValueError(f"Unknown rule {rule!r}. Choose one of: gaussian, percentile.")


def read_distances(
    path: Path | str, num_sensors: int | None = None, directed: bool = False
) -> Float[Tensor, "sensors sensors"]:
    """Distances from a CSV: a list of three columns with a line of names, or a matrix without.

    Args:
        num_sensors: How many there must be; from the file by default.
        directed: Whether the way back may have another length; otherwise such a file is refused.
    """
    path = Path(path)
    content = path.read_bytes()
    head = content.split(b"\n", 1)[0].decode("utf-8", "replace").split(",")
    if not all(is_number(cell) for cell in head):
        return distances_from_list(content, path.name, num_sensors, directed)
    return distances_from_matrix(content, path.name, num_sensors, directed)


def distances_from_matrix(
    content: bytes, name: str, num_sensors: int | None = None, directed: bool = False
) -> Float[Tensor, "sensors sensors"]:
    """A CSV of numbers, a row and a column for each sensor."""
    matrix = read_numbers(content, name)
    rows, columns = matrix.shape
    expected = rows if num_sensors is None else num_sensors
    if (rows, columns) != (expected, expected):
        raise ValueError(
            f"{name} must be a matrix of {expected} × {expected} distances, but is "
            f"{rows} × {columns}. Give a row and a column for each sensor."
        )
    if np.isnan(matrix).any():
        i, j = np.argwhere(np.isnan(matrix))[0]
        raise ValueError(
            f"{name} must hold distances, but that from {i} to {j} is empty or NaN. Write `inf` "
            "where there is no way."
        )
    return _checked(matrix, name, directed)


def distances_from_list(
    content: bytes, name: str, num_sensors: int | None = None, directed: bool = False
) -> Float[Tensor, "sensors sensors"]:
    """A CSV with a line of names and three columns: from, to (numbers from 0), length."""
    table = pd.read_csv(io.BytesIO(content))
    if table.shape[1] != 3:
        raise ValueError(
            f"{name} must have three columns, from, to and length, but has "
            f"{', '.join(map(str, table.columns))}."
        )
    if table.isna().any(axis=None) or not all(
        pd.api.types.is_integer_dtype(table[column]) for column in table.columns[:2]
    ):
        raise ValueError(
            f"{name} must hold numbers of sensors, from 0, in its first two columns, and no empty "
            "cell. Replace identifiers by the number of their column in the table of speeds."
        )
    start, end = (table[column].to_numpy() for column in table.columns[:2])
    length = table.iloc[:, 2].to_numpy(dtype=np.float64)
    size = int(max(start.max(), end.max())) + 1 if num_sensors is None else num_sensors
    if min(start.min(), end.min()) < 0 or max(start.max(), end.max()) >= size:
        raise ValueError(
            f"{name} must name sensors from 0 to {size - 1}, but names "
            f"{min(start.min(), end.min())} to {max(start.max(), end.max())}. The distances and "
            "the speeds are of different sensors."
        )
    matrix = np.full((size, size), np.inf)
    np.fill_diagonal(matrix, 0.0)
    for i, j, cost in zip(start, end, length, strict=True):
        for a, b in [(i, j)] if directed else [(i, j), (j, i)]:
            if np.isfinite(matrix[a, b]) and matrix[a, b] != cost and a != b:
                raise ValueError(
                    f"{name} must give a pair of sensors one length, but gives {a} to {b} "
                    f"{matrix[a, b]:g} and {cost:g}. Keep one"
                    f"{'' if directed else ', or give `directed=True` if ways back differ'}."
                )
            matrix[a, b] = cost
    return _checked(matrix, name, directed)


def shortest_paths(
    distances: Float[Tensor, "sensors sensors"],
) -> Float[Tensor, "sensors sensors"]:
    """Distances along the roads: the shortest way over any sensors in between."""
    plain = distances.cpu().numpy()
    known = np.isfinite(plain) & ~np.eye(len(plain), dtype=bool)
    start, end = known.nonzero()
    roads = csr_matrix((plain[start, end], (start, end)), shape=plain.shape)
    return torch.from_numpy(shortest_path(roads)).to(distances)


def _checked(matrix: np.ndarray, name: str, directed: bool) -> Tensor:
    if (matrix < 0).any():
        i, j = np.argwhere(matrix < 0)[0]
        raise ValueError(
            f"{name} must hold distances of 0 or more, but that from {i} to {j} is "
            f"{matrix[i, j]:g}."
        )
    if not directed and not np.array_equal(matrix, matrix.T):
        i, j = np.argwhere(matrix != matrix.T)[0]
        raise ValueError(
            f"{name} must be symmetric, but from {i} to {j} the distance is {matrix[i, j]:g} and "
            f"back it is {matrix[j, i]:g}. Give `directed=True` if that is meant."
        )
    return torch.from_numpy(matrix).to(torch.get_default_dtype())
