"""The Laplacian scaled to the interval where Chebyshev polynomials live.

    L̃ = 2 L / λ_max − I,    spectrum in [−1, 1]

Defferrard, Bresson, Vandergheynst (2016), "Convolutional Neural Networks on Graphs with Fast
Localized Spectral Filtering".
"""

import numpy as np
import torch

from graphode.graphs.graph import Graph
from graphode.graphs.normalization import LAPLACIANS

# Below this, all eigenvalues of the dense matrix are cheaper than iterations, and always found.
DENSE_NODES = 256


def scaled_laplacian(
    graph: Graph, kind: str = "sym_laplacian", largest_eigenvalue: float | int | None = None
) -> Graph:
    """2 L / λ_max − I as a graph of kind "scaled_laplacian".

    Args:
        graph: The graph, or one of its Laplacians.
        kind: Which Laplacian, if `graph` is not one already.
        largest_eigenvalue: λ_max; computed by default, for each graph of a batch its own. The bound
            2 of "sym_laplacian" and "rw_laplacian" spares the computation and leaves a part of
            [−1, 1] unused.
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
    return Graph._trusted(laplacian._pattern, weight, laplacian.source, "scaled_laplacian")


def spectral_radius(graph: Graph) -> float:
    """The largest modulus of an eigenvalue of the graph's matrix; not differentiable."""
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
    # A fixed start: the same graph always has the same radius, to the last bit.
    start = torch.rand(graph.num_nodes, generator=torch.Generator().manual_seed(0)).numpy()
    options = {"k": 1, "which": "LM", "v0": start, "return_eigenvectors": False}
    values = eigsh(matrix, **options) if detached.is_symmetric else eigs(matrix, **options)
    return float(np.abs(values).max())
