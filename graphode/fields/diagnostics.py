"""How smooth states become along a flow, and how hard a field is to follow.

Cai, Wang (2020), "A Note on Over-Smoothing for Graph Neural Networks" (Dirichlet energy); Poli et
al. (2019), "Graph Neural Ordinary Differential Equations", well-posedness (Lipschitz constants).
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from graphode.fields.structure import made_once, recording, source_of
from graphode.fields.validation import check_positive
from graphode.graphs import Graph

# Numbers below are not norms any more but rounding.
TINY = 1e-30


def dirichlet_energy(
    h: Float[Tensor, "*lead nodes channels"],
    graph: Graph,
    kind: str = "sym_laplacian",
    relative: bool = False,
) -> Float[Tensor, "*lead"]:
    """Σ over channels of hᵀ L h: 0 where neighbours agree, as they do when states over-smooth.

        ½ Σ_{u→v} w_uv ‖h_u/√d_u − h_v/√d_v‖²    for "sym_laplacian" of an undirected graph
        ½ Σ_{u→v} w_uv ‖h_u − h_v‖²              for "laplacian"

    Args:
        h: States; leading dimensions as they come, so `solution.states` gives the energy along
            depth.
        graph: The graph; of a normalised one, the source.
        kind: Which Laplacian.
        relative: Whether to divide by ‖h‖², for the share of what is rough.
    """
    laplacian = made_once(source_of(graph), kind, lambda source: source.normalize(kind))
    energy = (h * laplacian.propagate(h)).sum((-2, -1))
    return energy / h.square().sum((-2, -1)).clamp(min=TINY) if relative else energy


def lipschitz_estimate(
    field: Callable[..., Tensor],
    h: Float[Tensor, "*batch nodes channels"],
    graph: Any,
    t: float | Tensor = 0.0,
    iterations: int = 20,
    seed: int = 0,
) -> Float[Tensor, "*batch"]:
    """The largest singular value of ∂f/∂h, for each sample: how fast neighbours can part.

    Power iteration on JᵀJ, by Jacobian-vector products; a lower bound that rises to the value.
    A local Lipschitz constant L: where it holds, the distance between two states that flow for a
    time t changes by a factor from e^(−Lt) to e^(Lt).

    Args:
        field: A field that can be differentiated twice.
        h: Where to look; states along a solution may be stacked.
        graph: As for the field.
        t: The time there.
        iterations: Of the power method, two products each.
        seed: Of the vector it starts from.
    """

    def gram(push: Callable[[Tensor], Tensor], pull: Callable[[Tensor], Tensor], v: Tensor):
        return pull(push(v))

    return _power(field, h, graph, t, iterations, seed, gram)[-1].sqrt()


def stiffness_estimate(
    field: Callable[..., Tensor],
    h: Float[Tensor, "*batch nodes channels"],
    graph: Any,
    t: float | Tensor = 0.0,
    iterations: int = 40,
    seed: int = 0,
) -> Float[Tensor, "*batch"]:
    """The largest modulus of an eigenvalue of ∂f/∂h, for each sample.

    An explicit method needs steps of about 3 over this to be stable, whatever its tolerance; where
    the solution itself would allow far longer ones, the field is stiff. Power iteration on J; the
    growth is averaged, since a complex pair of eigenvalues makes it swing.

    Args:
        field, h, graph, t, seed: As for `lipschitz_estimate`.
        iterations: Of the power method; the second half is averaged.
    """

    def jacobian(push: Callable[[Tensor], Tensor], pull: Callable[[Tensor], Tensor], v: Tensor):
        del pull
        return push(v)

    growths = _power(field, h, graph, t, iterations, seed, jacobian)
    return growths[iterations // 2 :].log().mean(0).exp()


def _power(
    field: Callable[..., Tensor],
    h: Tensor,
    graph: Any,
    t: float | Tensor,
    iterations: int,
    seed: int,
    step: Callable[..., Tensor],
) -> Tensor:
    """The growth of a vector at each iteration, `[iterations, *batch]`."""
    if torch.is_inference_mode_enabled():
        with recording(h, graph, t) as (h, graph, t):
            return _power(field, h, graph, t, iterations, seed, step)
    check_positive("iterations", iterations, "Some 20 to 40 come close.")
    push, pull = _products(field, h, graph, t)
    # Drawn on the CPU, the same on every device; and once for all samples, so that none depends
    # on who else is in the batch.
    generator = torch.Generator().manual_seed(seed)
    v = torch.randn(h.shape[-2:], generator=generator, dtype=torch.float64)
    v, growths = v.to(h).expand(h.shape), []
    for _ in range(iterations):
        v = v / torch.linalg.vector_norm(v, dim=(-2, -1), keepdim=True).clamp(min=TINY)
        v = step(push, pull, v)
        growths.append(torch.linalg.vector_norm(v, dim=(-2, -1)).clamp(min=TINY))
    return torch.stack(growths)


def _products(
    field: Callable[..., Tensor], h: Tensor, graph: Any, t: float | Tensor
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """v → J v and u → Jᵀ u, from one evaluation of the field.

    The first is the derivative of the second, which is linear in u: any field that can be
    differentiated twice will do, and none needs forward mode.
    """
    with torch.enable_grad():
        here = h.detach().requires_grad_()
        dh = field(t, here, graph)
        u = torch.zeros_like(dh).requires_grad_()
        options: dict[str, Any] = {"retain_graph": True, "materialize_grads": True}
        if not dh.requires_grad:
            return torch.zeros_like, torch.zeros_like
        (pulled,) = torch.autograd.grad(dh, here, u, create_graph=True, **options)

    def pull(u: Tensor) -> Tensor:
        return torch.autograd.grad(dh, here, u, **options)[0]

    def push(v: Tensor) -> Tensor:
        if not pulled.requires_grad:
            return torch.zeros_like(v)
        return torch.autograd.grad(pulled, u, v, **options)[0]

    return push, pull
