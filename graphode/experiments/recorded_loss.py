"""The loss of an ensemble and its gradients, recorded once as a list of tensor operations.

On a CPU, with members as small as ten particles, more time goes into deciding what to do (mapping
over members, counting, checking) than into doing it. What is done never changes, so it is recorded
by `torch.fx`, forward and backward, and then repeated; compiled, its operations are also fused. A
GPU has `graphode.capture` for that.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from graphode.experiments.direct_calls import call_directly
from graphode.experiments.reused_memory import reuse_memory
from graphode.experiments.shortened import shorten
from graphode.flows import stochastic

Program = Literal["eager", "recorded", "compiled"]


def record(
    function: Callable[..., Any], *inputs: Tensor, compiled: bool = False
) -> Callable[..., Any]:
    """What a function does with tensors of these shapes, to be done again with others.

    What comes back is to be read only, and autograd knows nothing of it.

    Args:
        function: Returns a tensor or a list of them. No value may decide what it does, it draws
            nothing at random, and its graphs are matrices (`DenseGraph`).
        inputs: Tensors.
        compiled: Whether to compile it, which needs a C++ compiler and some ten seconds.
    """
    # Nothing is drawn inside, but members of an ensemble ask whose draw it would be.
    with stochastic(0, 0):
        program = shorten(make_fx(function)(*inputs))
    if compiled:
        return torch.inference_mode()(_compiled(program, inputs))
    return torch.inference_mode()(call_directly(reuse_memory(program)).forward)


def _compiled(program: fx.GraphModule, inputs: tuple[Tensor, ...]) -> Any:
    """What `torch.compile` does after tracing, without its checks at every call."""
    from torch._inductor import compile  # takes a second

    return compile(program, list(inputs))


class RecordedLoss:
    """Loss and gradients of members that do not drop anything, as one program.

    Args:
        ensemble: Whose parameters the program takes; each `[members, …]`.
        loss: Called as loss(ensemble, *inputs), returns `[members]`; what it reads beside the
            parameters and `inputs` is a constant of the program. No value may decide what it does.
        inputs: Tensors of the shapes that will come.
        compiled: As for `record`.
    """

    def __init__(
        self,
        ensemble: nn.Module,
        loss: Callable[..., Tensor],
        inputs: tuple[Tensor, ...],
        *,
        compiled: bool = False,
    ) -> None:
        whole = _Loss(ensemble, loss)
        names, parameters = zip(*whole.named_parameters(), strict=True)
        self.parameters = parameters

        def program(*tensors: Tensor) -> list[Tensor]:
            leaves = [tensor.detach().requires_grad_() for tensor in tensors[: len(names)]]
            inputs = tensors[len(names) :]
            with torch.enable_grad():
                values = functional_call(whole, dict(zip(names, leaves, strict=True)), inputs)
                # A member's loss depends on its own parameters only.
                each = torch.ones(values.shape, dtype=values.dtype, device=values.device)
                gradients = torch.autograd.grad(values, leaves, each, materialize_grads=True)
            return [values.detach(), *gradients]

        given = [p.detach() for p in parameters]
        self.program = record(program, *given, *inputs, compiled=compiled)

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The loss of each member, `[members]`, and its gradients by the ensemble's parameters."""
        loss, *gradients = self.program(*self.parameters, *inputs)
        return loss, gradients


class _Loss(nn.Module):
    """A loss as a module, so that its parameters can be replaced."""

    def __init__(self, ensemble: nn.Module, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.ensemble, self.loss = ensemble, loss

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.loss(self.ensemble, *inputs)
