"""Who is near whom among many particles, at a cost nearly linear in their number."""

import torch
from jaxtyping import Float, Int
from scipy.spatial import KDTree
from torch import Tensor


def close_pairs(positions: Float[Tensor, "n dims"], radius: float | int) -> Int[Tensor, "2 pairs"]:
    """Every pair i < j at most `radius` apart, once, in the order of i, then j."""
    # Candidates from a slightly larger radius, decided by one formula: that of the forces.
    tree = KDTree(positions.detach().cpu().double().numpy())
    found = torch.from_numpy(tree.query_pairs(radius * (1 + 1e-9), output_type="ndarray"))
    i, j = found.long().to(positions.device).t()
    near = torch.linalg.vector_norm(positions[i] - positions[j], dim=-1) <= radius
    order = (i * len(positions) + j)[near].argsort()
    return torch.stack([i[near][order], j[near][order]])
