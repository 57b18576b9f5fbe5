"""Distances between sensors: from a list of roads or from a matrix, to a graph.

A list has three columns, from, to and length (PEMS08, METR-LA); pairs it does not name are
infinitely far, unless `shortest_paths` walks along its roads. A matrix has a row and a column for
each sensor (PeMSD7), in the order of the speeds. Where the sensors have names, a list may name them
by these, and a matrix may have them as its first line, and first column, in any order. Names are
text: 01 is not 1.
"""

import csv
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

from graphode.data.csv_tables import first_line, is_number, read_csv, read_numbers
from graphode.graphs import Graph, gaussian_graph, percentile_graph

# STGCN (Yu et al., 2018) keeps exp(−(d / 10 km)² / 0.1) where it is at least 0.5.
STGCN_BANDWIDTH = 10_000 * math.sqrt(0.1)
STGCN_THRESHOLD = 0.5
PAPER_PERCENTILE = 40
DIRECTED = "give --directed (in Python `directed=True`)"


def traffic_graph(
    distances: Float[Tensor, "sensors sensors"],
    rule: Literal["percentile", "gaussian"] = "percentile",
    percentile: float | int = PAPER_PERCENTILE,
    bandwidth: float | int | None = None,
    threshold: float | int = STGCN_THRESHOLD,
    directed: bool = False,
) -> Graph:
    """The graph of the sensors, not normalised, without self-loops.

    Args:
        distances: Infinite where there is no way.
        rule: "percentile", the paper's: unweighted edges under that percentile of all distances,
            with 100 between all sensors that have a way; "gaussian", STGCN's: weights
            exp(−d² / bandwidth²) where they reach the threshold.
        bandwidth: By default the standard deviation of the distances; `STGCN_BANDWIDTH` for
            PeMSD7(M), in metres.
        directed: Whether the way back may have another length.
    """
    if rule == "percentile" and percentile == 100:
        # Nothing would be under the longest where there is one road, or all are as long.
        ways = torch.where(torch.isfinite(distances) & (distances >= 0), 0.0, distances)
        return gaussian_graph(ways, 1.0, 1.0, directed)
    if rule == "percentile":
        return percentile_graph(distances, percentile, directed)
    if rule == "gaussian":
        return gaussian_graph(distances, bandwidth, threshold, directed)
    raise ValueError(f"Unknown rule {rule!r}. Choose one of: gaussian, percentile.")


def read_distances(
    path: Path | str,
    num_sensors: int | None = None,
    directed: bool = False,
    sensor_names: Sequence[str] | None = None,
) -> Float[Tensor, "sensors sensors"]:
    """Distances from a CSV: a list of three columns with a line of names, or a matrix.

    Args:
        num_sensors: How many there must be; from the file by default.
        directed: Whether the way back may have another length; otherwise such a file is refused.
        sensor_names: Of the sensors, in their order; `TrafficSeries.sensor_names`. The ends of the
            roads of a list are all among them, or all numbers from 0, none of which is a name.
    """
    path = Path(path)
    content = path.read_bytes()
    # A name may hold a comma: `,"A7, north",A8`.
    head = [cell.strip() for cell in next(csv.reader([first_line(content)]))]
    if sensor_names is not None and set(sensor_names) in (set(head), set(head[1:])):
        return _distances_from_named_matrix(content, path.name, sensor_names, directed)
    if all(is_number(cell) for cell in head):
        return distances_from_matrix(content, path.name, num_sensors, directed, sensor_names)
    return distances_from_list(content, path.name, num_sensors, directed, sensor_names)


def distances_from_matrix(
    content: bytes,
    name: str,
    num_sensors: int | None = None,
    directed: bool = False,
    sensor_names: Sequence[str] | None = None,
) -> Float[Tensor, "sensors sensors"]:
    """A CSV of numbers, a row and a column for each sensor."""
    matrix = read_numbers(content, name)
    rows, columns = matrix.shape
    expected = rows if num_sensors is None else num_sensors
    if (rows, columns) != (expected, expected):
        roads = ", or put a line `from,to,length` before a list of roads" if columns == 3 else ""
        raise ValueError(
            f"{name} must be a matrix of {expected} × {expected} distances, but is "
            f"{rows} × {columns}. Give a row and a column for each sensor{roads}."
        )
    if np.isnan(matrix).any():
        i, j = np.argwhere(np.isnan(matrix))[0].tolist()
        raise ValueError(
            f"{name} must hold distances, but that from {_pair(i, j, sensor_names)} is empty or "
            "NaN. Write `inf` where there is no way."
        )
    return _checked(matrix, name, directed, sensor_names)


def _distances_from_named_matrix(
    content: bytes, name: str, sensor_names: Sequence[str], directed: bool
) -> Float[Tensor, "sensors sensors"]:
    """A matrix whose first line is the sensors' names; perhaps its first column, too."""
    table = read_csv(content, name, header=None, dtype=str)
    columns = [str(cell).strip() for cell in table.iloc[0]]
    rows, cells = columns, table.iloc[1:]
    if len(columns) == len(sensor_names) + 1:
        columns = columns[1:]
        rows, cells = [str(cell).strip() for cell in cells.iloc[:, 0]], cells.iloc[:, 1:]
    if sorted(rows) != sorted(sensor_names) or len(rows) != len(cells):
        raise ValueError(
            f"{name} must have a row for each of the {len(sensor_names)} sensors that its first "
            f"line names, but has {len(cells)}{_strangers(rows, sensor_names)}."
        )
    found = pd.DataFrame(cells.to_numpy(), rows, columns).loc[[*sensor_names], [*sensor_names]]
    bare = found.to_csv(header=False, index=False).encode()
    return distances_from_matrix(bare, name, len(sensor_names), directed, sensor_names)


def distances_from_list(
    content: bytes,
    name: str,
    num_sensors: int | None = None,
    directed: bool = False,
    sensor_names: Sequence[str] | None = None,
) -> Float[Tensor, "sensors sensors"]:
    """A CSV with a line of names and three columns: from, to (numbers from 0, or names), length."""
    table = read_csv(content, name, dtype={0: str, 1: str})  # 01 is a name, not 1
    if table.shape[1] != 3:
        raise ValueError(
            f"{name} must have three columns, from, to and length, or be a matrix of numbers "
            "without names, or with those of the speeds, but its first line is "
            f"{', '.join(map(str, table.columns))}."
        )
    if is_number(table.columns[2]):
        raise ValueError(
            f"{name} must begin with a line of names, but its first line is a road: "
            f"{first_line(content)!r}. Put a line `from,to,length` before it."
        )
    if not len(table) or table.isna().any(axis=None):
        raise ValueError(f"{name} must name at least one road, and have no empty cell.")
    if not pd.api.types.is_numeric_dtype(table.iloc[:, 2]):
        held = next(cell for cell in table.iloc[:, 2] if not is_number(cell))
        raise ValueError(f"{name} must hold lengths in its third column, but holds {held!r}.")
    start, end = _ends_of_roads(table, name, sensor_names)
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
    for i, j, cost in zip(start.tolist(), end.tolist(), length, strict=True):
        for a, b in [(i, j)] if directed else [(i, j), (j, i)]:
            if np.isfinite(matrix[a, b]) and matrix[a, b] != cost and a != b:
                raise ValueError(
                    f"{name} must give a pair of sensors one length, but gives "
                    f"{_pair(a, b, sensor_names)} {matrix[a, b]:g} and {cost:g}. Keep one"
                    f"{'' if directed else f', or, if ways back differ, {DIRECTED}'}."
                )
            matrix[a, b] = cost
    return _checked(matrix, name, directed, sensor_names)


def _ends_of_roads(
    table: pd.DataFrame, name: str, sensor_names: Sequence[str] | None
) -> tuple[np.ndarray, np.ndarray]:
    """From and to, as numbers of sensors."""
    cells = [str(cell).strip() for cell in table.iloc[:, :2].to_numpy().ravel()]
    number = {sensor: k for k, sensor in enumerate(sensor_names or ())}
    taken = {int(sensor) for sensor in number if _is_whole(sensor)}
    if all(cell in number for cell in cells):
        ends = [number[cell] for cell in cells]
    elif all(_is_whole(cell) and int(cell) not in taken for cell in cells):
        ends = [int(cell) for cell in cells]
    else:
        raise ValueError(
            f"{name} must name all sensors in its first two columns as the first line of the "
            "speeds does, or all by their numbers, from 0, if no sensor's name is one of these"
            f"{_strangers(cells, sensor_names or ())}. A matrix of numbers alone, in the order of "
            "the speeds, would do too."
        )
    start, end = np.array(ends).reshape(-1, 2).T
    return start, end


def _is_whole(cell: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]{1,18}", cell) is not None


def _strangers(found: Sequence[str], sensor_names: Sequence[str]) -> str:
    """The first of the names that is no sensor's, in words."""
    known = set(sensor_names)
    stranger = next((cell for cell in found if cell not in known), None)
    if stranger is None:
        return ""
    listed = ", ".join(sensor_names[:3]) + (", …" if len(sensor_names) > 3 else "")
    return f"; {stranger!r} is none of them" + (f" ({listed})" if listed else "")


def shortest_paths(
    distances: Float[Tensor, "sensors sensors"],
) -> Float[Tensor, "sensors sensors"]:
    """Distances along the roads: the shortest way over any sensors in between."""
    plain = distances.cpu().numpy()
    known = np.isfinite(plain) & ~np.eye(len(plain), dtype=bool)
    start, end = known.nonzero()
    roads = csr_matrix((plain[start, end], (start, end)), shape=plain.shape)
    return torch.from_numpy(shortest_path(roads)).to(distances)


def _checked(
    matrix: np.ndarray, name: str, directed: bool, sensor_names: Sequence[str] | None
) -> Tensor:
    if (matrix < 0).any():
        i, j = np.argwhere(matrix < 0)[0].tolist()
        raise ValueError(
            f"{name} must hold distances of 0 or more, but that from "
            f"{_pair(i, j, sensor_names)} is {matrix[i, j]:g}."
        )
    if not directed and not np.array_equal(matrix, matrix.T):
        i, j = np.argwhere(matrix != matrix.T)[0].tolist()
        raise ValueError(
            f"{name} must be symmetric, but from {_pair(i, j, sensor_names)} the distance is "
            f"{matrix[i, j]:g} and back it is {matrix[j, i]:g}. If that is meant, {DIRECTED}."
        )
    return torch.from_numpy(matrix).to(torch.get_default_dtype())


def _pair(i: int, j: int, sensor_names: Sequence[str] | None) -> str:
    """Two sensors, by their names where they have some."""
    return f"{i} to {j}" if sensor_names is None else f"{sensor_names[i]!r} to {sensor_names[j]!r}"
