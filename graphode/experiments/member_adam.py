"""Adam for an ensemble, each member with its own learning rate and weight decay.

    g ← g + λθ,   m ← β₁m + (1−β₁)g,   v ← β₂v + (1−β₂)g²,
    θ ← θ − η / (1−β₁ᵏ) · m / (√v / √(1−β₂ᵏ) + ε)

Kingma, Ba (2015), "Adam: A Method for Stochastic Optimization", with the L2 penalty λ inside the
gradient, as `torch.optim.Adam` has it. Members never meet, so that one optimiser for all is the
optimiser of each.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from graphode.flows.kernels import may_use_kernels


class MemberAdam:
    """Adam on stacked parameters; nothing asks the host, so that steps can be captured.

    Args:
        parameters: Each `[members, *shape]`.
        lr: η, a number or one per member `[members]`.
        weight_decay: λ, likewise; or a list, with one of these for each parameter.
        betas: β₁ and β₂.
        eps: ε.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        lr: float | Tensor,
        weight_decay: float | Tensor | Sequence[float | Tensor] = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.parameters = list(parameters)
        self.betas, self.eps = betas, eps
        self.lr = [_per_member(lr, parameter) for parameter in self.parameters]
        if not isinstance(weight_decay, Sequence):
            weight_decay = [weight_decay] * len(self.parameters)
        pairs = zip(weight_decay, self.parameters, strict=True)
        self.weight_decay = [_per_member(decay, parameter) for decay, parameter in pairs]
        self.means = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.squares = [torch.zeros_like(parameter) for parameter in self.parameters]
        # In float64, since powers of β₂ = 0.999 lose digits; on the device, since it is counted.
        device = self.parameters[0].device
        self.count = torch.zeros((), dtype=torch.float64, device=device)
        self.fused = may_use_kernels(*self.parameters)
        self.groups = [] if self.fused else self._alike_for_all_members()

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], pace: float | Tensor = 1.0) -> None:
        """Move every member by its own gradients.

        Args:
            pace: What the learning rates are multiplied by, `[]`.
        """
        self.count += 1
        if self.groups:
            self._step_in_one_pass(gradients, pace)
            return
        beta1, beta2 = self.betas
        correction1 = 1 - beta1**self.count
        correction2 = (1 - beta2**self.count).sqrt()
        if self.fused:
            self._step_by_kernel(gradients, torch.stack([correction1, correction2]), pace)
            return
        for k, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            mean, square = self.means[k], self.squares[k]
            gradient = gradient + self.weight_decay[k] * parameter
            mean.lerp_(gradient, 1 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            scale = (square.sqrt() / correction2.to(square)).add_(self.eps)
            parameter.sub_(mean / scale * (self.lr[k] / correction1.to(mean) * pace))

    def _alike_for_all_members(self) -> list[tuple[float, float, list[int]]]:
        """Rate, decay and places of parameters that torch's Adam for a CPU can move together."""
        if not all(p.device.type == "cpu" and p.is_contiguous() for p in self.parameters):
            return []
        places: dict[tuple[float, float], list[int]] = {}
        for k, (rate, decay) in enumerate(zip(self.lr, self.weight_decay, strict=True)):
            if isinstance(rate, Tensor) or isinstance(decay, Tensor):
                return []
            places.setdefault((rate, decay), []).append(k)
        return [(*rates, group) for rates, group in places.items()]

    def _step_in_one_pass(self, gradients: Sequence[Tensor], pace: float | Tensor) -> None:
        """All that happens to a number of a parameter while it is at hand."""
        beta1, beta2 = self.betas
        for rate, decay, group in self.groups:
            torch._fused_adam_(  # pyright: ignore[reportPrivateImportUsage]
                [self.parameters[k] for k in group],
                [gradients[k].contiguous() for k in group],
                [self.means[k] for k in group],
                [self.squares[k] for k in group],
                [],
                [self.count] * len(group),
                lr=rate * pace,
                beta1=beta1,
                beta2=beta2,
                weight_decay=decay,
                eps=self.eps,
                amsgrad=False,
                maximize=False,
            )

    def _step_by_kernel(
        self, gradients: Sequence[Tensor], corrections: Tensor, pace: float | Tensor
    ) -> None:
        from graphode.experiments.adam_kernel import adam_step

        for k, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            rate, decay = (_filled(of[k], parameter) for of in (self.lr, self.weight_decay))
            moments = self.means[k], self.squares[k]
            near = corrections.to(parameter)
            rate = (rate * pace).to(parameter)
            adam_step(parameter, gradient, *moments, rate, decay, near, self.betas, self.eps)

    def state(self) -> dict[str, Tensor]:
        """The tensors themselves, by name."""
        means = {f"mean.{k}": mean for k, mean in enumerate(self.means)}
        squares = {f"square.{k}": square for k, square in enumerate(self.squares)}
        return {"count": self.count, **means, **squares}


def _filled(rate: float | Tensor, parameter: Tensor) -> Tensor:
    """One rate for each member, `[members]`."""
    if isinstance(rate, Tensor):
        return rate.reshape(-1)
    return parameter.new_full((parameter.shape[0],), rate)


def _per_member(value: float | Tensor, parameter: Tensor) -> float | Tensor:
    """A number, or `[members, 1, …]` beside the parameter."""
    if not isinstance(value, Tensor) or value.ndim == 0:
        return float(value)
    if value.shape != parameter.shape[:1]:
        raise ValueError(
            f"A rate per member must have shape [{parameter.shape[0]}], one for each member, but "
            f"has shape {list(value.shape)}."
        )
    return value.to(parameter).reshape(-1, *(1,) * (parameter.ndim - 1))
