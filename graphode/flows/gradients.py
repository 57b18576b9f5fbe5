"""The four ways to differentiate a solve, and their options.

backprop            through every operation; exact, memory O(steps)
checkpoint          the same gradient, recomputed piece by piece; memory O(√steps)
adjoint             a second equation, solved backwards; approximate, memory O(1)
checkpoint_adjoint  the adjoint, with the state reset at stored points
"""

from dataclasses import dataclass

import torch

from graphode.flows.problem import check_positive


@dataclass(frozen=True)
class Backprop:
    """Differentiate through the operations of the solver. Second derivatives work."""


@dataclass(frozen=True)
class Checkpoint:
    """Keep the state at about √steps points and take the steps between them again in backward."""


@dataclass(frozen=True, kw_only=True)
class Adjoint:
    """Solve for a(t) = dL/dy(t) backwards in time, together with y.

    Chen et al. (2018), "Neural Ordinary Differential Equations"; Kidger, Chen, Lyons (2021),
    "Hey, that's not an ODE: Faster ODE adjoints via seminorms".

    Args:
        seminorm: Leave the parameters' gradient, a mere integral, out of the error norm.
        rtol: Relative tolerance of the backward solve; None takes the forward one.
        atol: Absolute tolerance of the backward solve; None takes the forward one.
    """

    seminorm: bool = True
    rtol: float | None = None
    atol: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if value is not None:
                check_positive(name, value, "Leave it out to take the one of the forward solve.")


@dataclass(frozen=True, kw_only=True)
class CheckpointAdjoint(Adjoint):
    """The adjoint, with y reset to stored states, as the paper proposes against drift.

    Args:
        resets: Points between the first and the last output time where y is stored, besides the
            output times themselves.
    """

    resets: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resets < 1:
            raise ValueError(
                f"`resets` must be at least 1, but is {self.resets}. Use gradient='adjoint' for "
                f"an adjoint without stored states."
            )


Gradient = Backprop | Checkpoint | Adjoint

GRADIENTS: dict[str, Gradient] = {
    "backprop": Backprop(),
    "checkpoint": Checkpoint(),
    "adjoint": Adjoint(),
    "checkpoint_adjoint": CheckpointAdjoint(),
}


def find_gradient(gradient: str | Gradient) -> Gradient:
    """The gradient method called `gradient`; an instance passes through."""
    if isinstance(gradient, Gradient):
        return gradient
    if gradient not in GRADIENTS:
        raise ValueError(
            f"Unknown gradient {gradient!r}. Choose one of: {', '.join(sorted(GRADIENTS))}."
        )
    return GRADIENTS[gradient]


def refuse_second_derivatives(of: str, remedy: str) -> None:
    """Raise where a backward pass is recorded; its result would pass for a constant."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            f"Second derivatives of {of} are not available, but `create_graph=True` asks for them. "
            f"Use {remedy}."
        )
