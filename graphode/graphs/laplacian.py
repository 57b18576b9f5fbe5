"""The Laplacian scaled to the interval where Chebyshev polynomials live.

    L̃ = 2 L / λ_max − I,    spectrum in [−1, 1]

Defferrard, Bresson, Vandergheynst (2016), "Convolutional Neural Networks on Graphs with Fast
Localized Spectral Filtering".
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from graphode.graphs.graph import Graph
from graphode.graphs.normalization import LAPLACIANS

# Below this, all eigenvalues of the dense matrix are cheaper than iterations, and always found.
DENSE_NODES = 256

# Each restart is some 20 products, or 40.
RESTARTS = 100
LOOSE = 1e-4


def scaled_laplacian(
    graph: Graph, kind: str = "sym_laplacian", largest_eigenvalue: float | int | None = None
) -> Graph:
    """2 L / λ_max − I as a graph of kind "scaled_laplacian".

    Args:
        graph: The graph, or one of its Laplacians.
        kind: Which Laplacian, if `graph` is not one already.
        largest_eigenvalue: λ_max; by default the `spectral_radius`, for each graph of a batch its
            own. The bound 2 of "sym_laplacian" and "rw_laplacian" spares the computation and leaves
            a part of [−1, 1] unused.
    """
    if kind not in LAPLACIANS:
        raise ValueError(f"Unknown Laplacian {kind!r}. Choose one of: {', '.join(LAPLACIANS)}.")
    laplacian = graph.normalize(kind) if graph.kind is None else graph
    if laplacian.kind not in LAPLACIANS:
        raise ValueError(
            f"A scaled Laplacian is made from a graph or its Laplacian, but this graph is "
            f"normalised as {graph.kind!r}. Use `scaled_laplacian(graph.source)`."
        )
    if largest_eigenvalue is not None and largest_eigenvalue <= 0:
        raise ValueError(
            f"`largest_eigenvalue` must be positive, but it is {largest_eigenvalue}. Leave it out "
            "to have it computed."
        )
    source, target = laplacian.edge_index
    on_diagonal = (source == target).to(laplacian.dtype)
    if largest_eigenvalue is None:
        # A graph without edges has λ_max = 0; any scale then gives L̃ = −I.
        scales = [2 / (spectral_radius(one) or 1.0) for one in laplacian.unbatch()]
        scale = laplacian.edge_weight.new_tensor(scales)[laplacian.node_graph[target]]
    else:
        scale = 2 / largest_eigenvalue
    weight = laplacian.edge_weight * scale - on_diagonal
    pattern, mask = laplacian._pattern, laplacian._keep_mask
    return Graph._trusted(pattern, weight, laplacian.source, "scaled_laplacian", keep_mask=mask)


def spectral_radius(graph: Graph) -> float:
    """The largest modulus of an eigenvalue of the graph's matrix; not differentiable.

    Exact up to 256 nodes. Beyond, Krylov iterations find it to rounding where it stands apart.
    Where it does not, as on long paths and rings, what comes back serves to scale a matrix: that of
    an undirected graph to four digits, otherwise an upper bound, at most the largest sum of moduli
    along a row, and at most 2 for "sym_laplacian" and "rw_laplacian".
    """
    if not bool(graph.edge_weight.detach().any()):  # where iterations have nothing to find
        return 0.0
    detached = graph.reweight(graph.edge_weight.detach()).to("cpu", torch.float64)
    if graph.num_nodes <= DENSE_NODES:
        dense = detached.to_dense()
        solve = torch.linalg.eigvalsh if detached.is_symmetric else torch.linalg.eigvals
        return float(solve(dense).abs().max())
    # SciPy is imported where it is used: `import graphode` is a quarter of a second faster.
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import eigs, eigsh

    source, target = detached.edge_index.numpy()
    size = (graph.num_nodes, graph.num_nodes)
    matrix = csr_array((detached.edge_weight.numpy(), (target, source)), shape=size)
    if detached.is_symmetric:
        # A loose residual bounds the error, of a symmetric matrix only.
        found = _iterated(eigsh, matrix, 0.0)
        found = _iterated(eigsh, matrix, LOOSE) if found is None else found
    else:
        matrix = _within_components(matrix)
        # With 20 vectors, the default, a pair of complex eigenvalues may be passed over.
        found = _iterated(eigs, matrix, 0.0, ncv=40)
    return _bound(matrix, graph.kind) if found is None else found


def _iterated(
    solve: Callable[..., Any], matrix: Any, tolerance: float, **options: Any
) -> float | None:
    """The largest modulus by ARPACK; None where it does not converge."""
    from scipy.sparse.linalg import ArpackError

    # A fixed start: the same graph always has the same radius, to the last bit.
    start = torch.rand(matrix.shape[0], generator=torch.Generator().manual_seed(0)).numpy()
    options |= {"k": 1, "which": "LM", "v0": start, "maxiter": RESTARTS, "tol": tolerance}
    try:
        return float(np.abs(solve(matrix, return_eigenvectors=False, **options)).max())
    except ArpackError:
        return None


def _within_components(matrix: Any) -> Any:
    """The matrix without entries between strongly connected components: of the same eigenvalues.

    Ordered by components it is triangular in blocks. Without edges that only lead on, a directed
    path has the spectrum that it has, where iterations find that of a ring nearby.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    component = connected_components(matrix, connection="strong")[1]
    entries = matrix.tocoo()
    inside = component[entries.row] == component[entries.col]
    places = (entries.row[inside], entries.col[inside])
    return coo_array((entries.data[inside], places), shape=matrix.shape).tocsr()


def _bound(matrix: Any, kind: str | None) -> float:
    """No eigenvalue is larger than a norm; those of a normalised Laplacian are at most 2."""
    norm = float(min(abs(matrix).sum(axis=axis).max() for axis in (0, 1)))
    return min(norm, 2.0) if kind in ("sym_laplacian", "rw_laplacian") else norm
