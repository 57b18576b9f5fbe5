"""The loss of an ensemble and its gradients, recorded once as a list of tensor operations.

On a CPU, with members as small as ten particles, more time goes into deciding what to do (mapping
over members, counting, checking) than into doing it. What is done never changes, so it is recorded
by `torch.fx`, forward and backward, and then repeated; compiled, its operations are also fused. A
GPU has `graphode.capture` for that.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from graphode.flows import stochastic

Program = Literal["eager", "recorded", "compiled"]


def record(
    function: Callable[..., Any], *inputs: Any, compiled: bool = False
) -> Callable[..., Any]:
    """What a function does with tensors of these shapes, to be done again with others.

    Args:
        function: No value may decide what it does, it draws nothing at random, and its graphs
            are matrices (`DenseGraph`).
        inputs: Tensors, or lists of them.
        compiled: Whether to compile it, which needs a C++ compiler and some ten seconds.
    """
    # Nothing is drawn inside, but members of an ensemble ask whose draw it would be.
    with stochastic(0, 0):
        program = make_fx(function)(*inputs)
    return torch.compile(program) if compiled else program


class RecordedLoss:
    """`loss(ensemble)` of members that do not drop anything, as one program.

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

        def program(parameters: list[Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
            leaves = [parameter.detach().requires_grad_() for parameter in parameters]
            with torch.enable_grad():
                values = functional_call(whole, dict(zip(names, leaves, strict=True)), inputs)
                gradients = torch.autograd.grad(values.sum(), leaves, materialize_grads=True)
            return (values.detach(), *gradients)

        given = [p.detach() for p in parameters]
        self.program = record(program, given, *inputs, compiled=compiled)

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The loss of each member, with gradients."""
        return _Repeated.apply(self.program, len(inputs), *inputs, *self.parameters)


class _Loss(nn.Module):
    """A loss as a module, so that its parameters can be replaced."""

    def __init__(self, ensemble: nn.Module, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.ensemble, self.loss = ensemble, loss

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.loss(self.ensemble, *inputs)


class _Repeated(torch.autograd.Function):
    """The program's loss, whose gradients are known as soon as it is."""

    @staticmethod
    def forward(ctx: Any, program: Callable[..., Any], count: int, *tensors: Tensor) -> Tensor:
        inputs, parameters = tensors[:count], tensors[count:]
        loss, *gradients = program([p.detach() for p in parameters], *inputs)
        ctx.save_for_backward(*gradients)
        ctx.count = count
        return loss

    @staticmethod
    def backward(ctx: Any, *weights: Tensor) -> tuple[Any, ...]:
        # A member's loss depends on its own parameters only.
        gradients = (
            weights[0].reshape(-1, *(1,) * (gradient.ndim - 1)) * gradient
            for gradient in ctx.saved_tensors
        )
        return (None, None, *(None,) * ctx.count, *gradients)
