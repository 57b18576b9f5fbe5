"""Graphs from a table of distances: between stations, regions, cities.

`distances[i, j]` is the distance from i to j; where it decides for an edge, that edge runs i → j.
Infinite distances are no way at all. The diagonal is not looked at: no self-loops.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from graphode.graphs.graph import Graph
from graphode.graphs.pattern import Pattern
from graphode.graphs.validation import ArrayLike, as_floats

SYMMETRY_TOLERANCE = 1e-3  # of the largest distance


def percentile_graph(
    distances: Float[Tensor, "nodes nodes"] | ArrayLike,
    percentile: float | int,
    directed: bool = False,
) -> Graph:
    """Unweighted edges between nodes closer than the given percentile of all distances.

    Poli et al. (2019) join traffic stations so, at the 40th percentile. The percentile is taken
    over the finite distances between different nodes.

    Args:
        distances: 0 or more, possibly infinite.
        percentile: From 0, no edges, to 100, all but the longest.
        directed: Whether the way back may have another length; otherwise that is refused, but for
            rounding, of which the mean is taken.
    """
    if not 0 <= percentile <= 100:
        raise ValueError(
            f"`percentile` must be from 0 to 100, but it is {percentile}. For a fraction p, give "
            "100 p."
        )
    distances, between = _checked(distances, directed)
    threshold = float(np.percentile(between, percentile)) if between.size else 0.0
    return _graph(distances < threshold, torch.ones_like(distances))


def gaussian_graph(
    distances: Float[Tensor, "nodes nodes"] | ArrayLike,
    bandwidth: float | int | None = None,
    threshold: float | int = 0.1,
    directed: bool = False,
) -> Graph:
    """Edges of weight exp(−d² / σ²), kept where that is at least `threshold`.

    Shuman et al. (2013), "The Emerging Field of Signal Processing on Graphs", as used by DCRNN
    (σ the standard deviation, threshold 0.1) and STGCN. Gradients pass to the distances.

    Args:
        distances: 0 or more, possibly infinite.
        bandwidth: σ; by default the standard deviation of the finite distances between different
            nodes.
        threshold: The smallest weight that is an edge, from 0 to 1.
        directed: Whether the way back may have another length; otherwise that is refused, but for
            rounding, of which the mean is taken.
    """
    if not 0 <= threshold <= 1:
        raise ValueError(
            f"`threshold` must be from 0 to 1, as the weights are, but it is {threshold}. "
            "A larger threshold keeps fewer edges."
        )
    distances, between = _checked(distances, directed)
    if bandwidth is None:
        bandwidth = float(between.std()) if between.size else 1.0
        if bandwidth == 0:
            raise ValueError(
                "`bandwidth` must be given here: all distances are equal, so that their standard "
                "deviation is 0. Give a typical distance."
            )
    if not (bandwidth > 0 and math.isfinite(bandwidth)):
        raise ValueError(
            f"`bandwidth` must be positive and finite, but it is {bandwidth}. Give a typical "
            "distance, or None."
        )
    finite = torch.isfinite(distances.detach())
    weight = torch.exp(-((torch.where(finite, distances, 0.0) / bandwidth) ** 2))
    return _graph(finite & (weight.detach() >= threshold), weight)


def _checked(distances: ArrayLike, directed: bool) -> tuple[Tensor, np.ndarray]:
    """The distances, symmetric unless directed, and the finite ones between different nodes."""
    distances = as_floats(distances)
    if distances.dim() != 2 or distances.shape[0] != distances.shape[1]:
        raise ValueError(
            f"`distances` must be square, nodes × nodes, but its shape is {list(distances.shape)}. "
            "From positions, `torch.cdist(positions, positions)` makes it."
        )
    plain = distances.detach().cpu().numpy()
    apart = ~np.eye(len(plain), dtype=bool)
    wrong = apart & ~(plain >= 0)
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        raise ValueError(
            f"`distances` must be 0 or more, but from node {i} to node {j} it is {plain[i, j]}. "
            "Mark pairs without a distance by infinity."
        )
    between = plain[apart & np.isfinite(plain)]
    if not directed:
        # Not bit for bit: `torch.cdist` and sums along a path differ by rounding.
        slack = SYMMETRY_TOLERANCE * between.max(initial=0.0)
        wrong = apart & ~np.isclose(plain, plain.T, rtol=0, atol=slack)
        if wrong.any():
            i, j = np.argwhere(wrong)[0]
            raise ValueError(
                f"`distances` must be symmetric, but from node {i} to node {j} it is "
                f"{plain[i, j]} and back {plain[j, i]}. Give `torch.minimum(distances, "
                "distances.T)`, or `directed=True` if ways back differ."
            )
        distances = (distances + distances.t()) / 2
        between = distances.detach().cpu().numpy()[apart & np.isfinite(plain)]
    return distances, between


def _graph(chosen: Tensor, weight: Tensor) -> Graph:
    chosen = chosen & ~torch.eye(len(chosen), dtype=torch.bool, device=chosen.device)
    source, target = chosen.nonzero(as_tuple=True)
    return Graph._trusted(
        Pattern(torch.stack([source, target]), len(chosen)), weight[source, target]
    )
