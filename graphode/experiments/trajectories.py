"""Embeddings followed through the flow, in a form that figures can draw.

projected   one member's states on the first two principal components of its last
energy      Dirichlet energy of some members along depth, as a share of ‖h‖²
"""

import numpy as np
import torch
from torch import Tensor

from graphode.data import NodeData
from graphode.ensembles import Ensemble
from graphode.fields import dirichlet_energy, unpack
from graphode.graphs import Graph
from graphode.models import GDE, SparseFeatures

MOMENTS = 41
NODES = 1500  # drawn at most; more are a blot


@torch.no_grad()
def followed(
    ensemble: Ensemble, x: SparseFeatures, graph: Graph, data: NodeData, members: int
) -> dict[str, np.ndarray]:
    """What to keep of the paths of the first members that have not diverged.

    Nothing of a model without a flow.

    Returns:
        `times [time]`, `projected [time, nodes, 2]`, `labels [nodes]`, `energy [members, time]`.
    """
    energies, projected = [], None
    nodes = torch.linspace(0, data.num_nodes - 1, min(NODES, data.num_nodes)).round().long()
    for index in _healthy(ensemble)[:members]:
        model = ensemble.member(index).eval()
        if not isinstance(model, GDE):
            return {}
        times = torch.linspace(float(model.t0), float(model.t1), MOMENTS, dtype=torch.float64)
        states = model.solve(x, graph, times, dense=False).states
        states = unpack(model.flow.field, states)
        energies.append(dirichlet_energy(states, graph, relative=True).cpu())
        if projected is None:
            projected = principal_components(states[:, nodes.to(states.device)]).cpu()
    if projected is None:
        return {}
    return {
        "times": times.numpy(),  # pyright: ignore[reportPossiblyUnboundVariable]
        "projected": projected.to(torch.float32).numpy(),
        "labels": data.labels[nodes].numpy(),
        "energy": torch.stack(energies).to(torch.float64).numpy(),
    }


def _healthy(ensemble: Ensemble) -> list[int]:
    finite = [p.isfinite().flatten(1).all(1) for p in ensemble.parameters()]
    return torch.stack(finite).all(0).nonzero().flatten().tolist()


def principal_components(states: Tensor) -> Tensor:
    """All states on the two directions in which the last ones differ most: `[time, nodes, 2]`."""
    last = states[-1] - states[-1].mean(0)
    _, basis = torch.linalg.eigh(last.mT @ last)
    chosen = basis[:, -2:].flip(-1)
    # Eigenvectors have no sign of their own.
    chosen = chosen * torch.where(chosen.sum(0) < 0, -1.0, 1.0).to(chosen)
    return (states - states[-1].mean(0)) @ chosen
