"""Activations by name."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Activation = Callable[[Tensor], Tensor]


def _identity(h: Tensor) -> Tensor:
    return h


ACTIVATIONS: dict[str, Activation] = {
    "elu": functional.elu,
    "gelu": functional.gelu,
    "leaky_relu": functional.leaky_relu,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "sin": torch.sin,
    "softplus": functional.softplus,
    "tanh": torch.tanh,
}


def find_activation(activation: str | Activation | None) -> Activation:
    """The activation called `activation`; None is the identity, a callable passes through."""
    if activation is None:
        return _identity
    if callable(activation):
        return activation
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"Unknown activation {activation!r}. Choose one of: "
            f"{', '.join(sorted(ACTIVATIONS))}; None; or pass a function of one tensor."
        )
    return ACTIVATIONS[activation]
