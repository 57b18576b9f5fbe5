"""What a flow costs on its way, integrated along with it.

    c(t1) = ∫ ‖f(t, h)‖² dt    and    ∫ ‖εᵀ ∂f/∂h‖² dt

Small costs mean straight trajectories and fewer evaluations. Finlay, Jacobsen, Nurbekyan, Oberman
(2020), "How to train your neural ODE: the world of Jacobian and kinetic regularization".
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from graphode.fields.dropout import lined_up
from graphode.fields.extension import Extension, pack, unpack
from graphode.fields.structure import recording
from graphode.fields.validation import check_closes
from graphode.flows import Stochastic
from graphode.flows.masks import hashed_positions
from graphode.flows.stochastic import has_one_mask
from graphode.graphs import Graph


class Costed(Extension):
    """A field that keeps account of its own cost, in channels of the state.

        d[y, ε, c]/dt = [f(t, y, graph), 0, ‖f‖², ‖εᵀ ∂f/∂y‖²]    node by node

    The squared norm of the Jacobian is estimated by Hutchinson's trick: the mean of ‖εᵀ J‖² over
    random signs ε is the squared Frobenius norm. The signs are drawn once, by `pack`, under the
    key of `graphode.stochastic`, and travel with the state: within one solve the cost is a
    function. Costs count in the error norm.

        z = flow(field.pack(h), graph)
        loss = task(field.unpack(z)) + (field.costs(z) * weights).sum(-1).mean()

    Args:
        field: The field whose cost it is.
        kinetic: Whether the kinetic energy is integrated.
        jacobian: Whether the Jacobian's norm is, at one backward pass through f an evaluation.
    """

    def __init__(
        self, field: Callable[..., Tensor], kinetic: bool = True, jacobian: bool = False
    ) -> None:
        super().__init__()
        if not (kinetic or jacobian):
            raise ValueError(
                "`Costed` keeps account of something: `kinetic`, `jacobian` or both, but neither "
                "was asked for. Use the field itself."
            )
        self.field: Any = field
        self.kinetic, self.jacobian = kinetic, jacobian
        self.signs = Stochastic()

    @property
    def num_costs(self) -> int:
        """How many channels hold costs."""
        return int(self.kinetic) + int(self.jacobian)

    def forward(
        self, t: float | Tensor, z: Float[Tensor, "*batch nodes all_channels"], graph: Any
    ) -> Float[Tensor, "*batch nodes all_channels"]:
        """The velocity of the state, and the rates of the costs."""
        y, noise = self._parts(z)
        if self.jacobian:
            dy, pulled = _pulled_back(self.field, t, y, graph, noise)
        else:
            dy, pulled = self.field(t, y, graph), y
        check_closes(self, dy, y, "the field inside", "Make the state with `pack`.")
        rates = [dy]
        if self.jacobian:
            rates.append(torch.zeros_like(noise))
        if self.kinetic:
            rates.append(dy.square().sum(-1, keepdim=True))
        if self.jacobian:
            rates.append(pulled.square().sum(-1, keepdim=True))
        return torch.cat(rates, -1)

    def _parts(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The state of the field inside, and the signs."""
        rest = z[..., : z.shape[-1] - self.num_costs]
        if not self.jacobian:
            return rest, rest[..., :0]
        y, noise = rest.chunk(2, -1)
        return y, noise

    def pack(
        self,
        h: Float[Tensor, "*batch nodes channels"],
        noise: Float[Tensor, "*batch nodes inner_channels"] | None = None,
    ) -> Float[Tensor, "*batch nodes all_channels"]:
        """The state with new signs (or the `noise` given) and costs of zero."""
        parts = [pack(self.field, h)]
        if self.jacobian:
            if noise is None:
                # Samples that are named have keys of their own, which tell them apart.
                shape = parts[0].shape if has_one_mask() else parts[0].shape[-2:]
                positions = hashed_positions(tuple(shape), h.device)
                signs = self.signs.keep_mask(0.5, positions, h) - 1
                noise = lined_up(signs, parts[0], len(shape)).expand_as(parts[0])
            parts.append(noise)
        parts.append(h.new_zeros(*h.shape[:-1], self.num_costs))
        return torch.cat(parts, -1)

    def unpack(
        self, z: Float[Tensor, "*lead nodes all_channels"]
    ) -> Float[Tensor, "*lead nodes channels"]:
        """The user's state."""
        return unpack(self.field, self._parts(z)[0])

    def costs(
        self, z: Float[Tensor, "*lead nodes all_channels"], graph: Graph | None = None
    ) -> Float[Tensor, "... costs"]:
        """The costs so far, summed over nodes: kinetic first, then that of the Jacobian.

        For a batch of graphs with all nodes in one row, those of each: `[..., graphs, costs]`.
        """
        each = z[..., z.shape[-1] - self.num_costs :]
        if graph is None or graph.num_graphs == 1 or z.shape[-2] != graph.num_nodes:
            return each.sum(-2)
        zeros = each.new_zeros(*each.shape[:-2], graph.num_graphs, self.num_costs)
        return zeros.index_add(-2, graph.node_graph, each)


def _pulled_back(
    field: Callable[..., Tensor], t: float | Tensor, y: Tensor, graph: Any, noise: Tensor
) -> tuple[Tensor, Tensor]:
    """f and εᵀ ∂f/∂y, differentiable where gradients are wanted."""
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        dy, pull, *_ = torch.func.vjp(lambda state: field(t, state, graph), y)
        return dy, pull(noise)[0]
    if torch.is_inference_mode_enabled():
        with recording(t, y, graph, noise) as (t, y, graph, noise), torch.no_grad():
            return _pulled_back(field, t, y, graph, noise)
    wanted = torch.is_grad_enabled()
    with torch.enable_grad():
        here = y if wanted and y.requires_grad else y.detach().requires_grad_()
        dy = field(t, here, graph)
        if not dy.requires_grad:
            return dy, torch.zeros_like(y)
        (pulled,) = torch.autograd.grad(
            dy, here, noise, create_graph=wanted, allow_unused=True, materialize_grads=True
        )
    return (dy, pulled) if wanted else (dy.detach(), pulled)
