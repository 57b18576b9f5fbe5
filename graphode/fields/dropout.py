"""Dropout that keeps a solve well-posed: its masks are functions of a key.

    dropout(h) = h ∘ m / (1 − p),    m = 1 with probability 1 − p, fixed within a solve

See `graphode.stochastic` for the key. Srivastava et al. (2014), "Dropout".
"""

from jaxtyping import Float
from torch import Tensor

from graphode.flows import Stochastic
from graphode.flows.stochastic import Redraw
from graphode.graphs import Graph


def _checked(rate: float) -> float:
    if not 0 <= rate < 1:
        raise ValueError(
            f"A dropout rate must be at least 0 and below 1, but is {rate}. It is the share that "
            f"is dropped."
        )
    return rate


class Dropout(Stochastic):
    """Drops entries of a state, one mask for all samples unless samples are named.

    Args:
        rate: Probability to drop.
        redraw: When a new mask is drawn: per_solve, per_step, per_eval.
        force: Allow `per_eval` under adaptive solvers and adjoints.

    Shapes:
        - **h:** `[..., nodes, channels]`; the same comes out.
    """

    def __init__(self, rate: float, redraw: Redraw = "per_solve", force: bool = False) -> None:
        super().__init__(redraw, force)
        self.rate = _checked(rate)

    def forward(
        self, h: Float[Tensor, "*batch nodes channels"]
    ) -> Float[Tensor, "*batch nodes channels"]:
        if not self.training or self.rate == 0:
            return h
        mask = self.keep_mask(self.rate, tuple(h.shape[-2:]), h)
        keys = mask.ndim - 2
        # Keys (members, samples) stand for the first dimensions of the batch.
        missing = h.ndim - mask.ndim
        if keys and missing:
            mask = mask.reshape(*mask.shape[:keys], *(1,) * missing, *mask.shape[keys:])
        return h * mask

    def extra_repr(self) -> str:
        return f"{self.rate}, redraw={self.redraw!r}"


class EdgeDropout(Stochastic):
    """Drops edges: a graph with fewer of them, the weights of the rest scaled by 1/(1 − p).

    On a symmetric graph both directions of an edge have masks of their own.

    Args:
        rate: Probability to drop.
        redraw: When a new mask is drawn: per_solve, per_step, per_eval.
        force: Allow `per_eval` under adaptive solvers and adjoints.
    """

    def __init__(self, rate: float, redraw: Redraw = "per_solve", force: bool = False) -> None:
        super().__init__(redraw, force)
        self.rate = _checked(rate)

    def forward(self, graph: Graph) -> Graph:
        if not self.training or self.rate == 0:
            return graph
        mask = self.keep_mask(self.rate, (graph.num_edges,), graph.edge_weight)
        return graph.reweight(graph.edge_weight * mask)

    def extra_repr(self) -> str:
        return f"{self.rate}, redraw={self.redraw!r}"
