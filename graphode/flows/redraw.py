"""What the masks of a field are to a solver: whether it is a function, and of what.

Error control, adjoints and checkpoints rely on a field that gives the same at the same place. One
whose masks change on the way is refused where they do, with the reason and what to do.
"""

from dataclasses import dataclass

from torch import nn

from graphode.flows.stochastic import Stochastic

# Torch's own dropout, whose masks are the next draws of a generator: new ones at every evaluation.
TORCH_DROPOUT = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)


def _draws_by_itself(module: nn.Module) -> bool:
    """Whether a layer of torch's or PyG's has a rate of dropout as a number.

    A module with masks of ours in it has given them the number.
    """
    rate = getattr(module, "dropout", 0.0)
    if not isinstance(rate, float) or rate <= 0:
        return False
    return not any(isinstance(part, Stochastic) for part in module.modules())


@dataclass(frozen=True)
class Need:
    """What needs the field to be a function.

    Attributes:
        reason: Why, in words.
        adaptive: Whether it is a solver that estimates its error.
        adjoint: Whether it is a gradient by a backward solve.
        recomputed: Whether it is a gradient that evaluates the field again.
    """

    reason: str
    adaptive: bool
    adjoint: bool
    recomputed: bool

    def check(self, module: Stochastic, path: str = "") -> None:
        """Refuse a module of ours whose masks change where the field must stay the same."""
        breaks = self.adjoint or (self.adaptive and module.redraw == "per_eval")
        if breaks and module.redraw != "per_solve" and not module.force:
            raise ValueError(
                f"Module {path or 'field'!r} draws its masks {module.redraw}, but {self.reason}. "
                f"Use redraw='per_solve' (the default), a fixed-step solver with "
                f"gradient='backprop' or 'checkpoint', or force=True to do it all the same."
            )


def need_of(*, adaptive: bool, adjoint: bool, recomputed: bool) -> Need | None:
    """What of a solve needs the field to be a function; nothing for fixed steps with backprop.

    Args:
        adaptive: Whether the solver estimates its error.
        adjoint: Whether the gradient comes from a backward solve.
        recomputed: Whether the backward pass evaluates the field again, as adjoints and checkpoints
            do. Masks with a key then come back, torch's do not.
    """
    if adjoint:
        reason = (
            "an adjoint solves the field backwards, at other points, and needs the masks of the "
            "forward solve"
        )
    elif adaptive:
        reason = "an adaptive solver takes the redrawn masks for error and cuts its steps down"
    elif recomputed:
        reason = "checkpoints evaluate the field again, and need the masks of the forward solve"
    else:
        return None
    return Need(reason, adaptive, adjoint, recomputed)


def check_redraw(f: object, need: Need) -> None:
    """Refuse modules of a field that change its masks while a solve relies on them.

    What a function or a module holds without having it registered is found when it draws, or when
    the field has drawn random numbers (`Evaluation`).
    """
    if not isinstance(f, nn.Module):
        return
    for path, module in f.named_modules():
        if not module.training:
            continue
        if isinstance(module, TORCH_DROPOUT) and module.p > 0:
            raise ValueError(
                f"Module {path or 'field'!r} is torch's {type(module).__name__}, which draws a new "
                f"mask at every evaluation, but {need.reason}. Use "
                f"`graphode.Dropout({module.p:g})`, whose mask is fixed within a solve, or a "
                f"fixed-step solver with gradient='backprop'."
            )
        if _draws_by_itself(module):
            raise ValueError(
                f"Module {path or 'field'!r} ({type(module).__name__}) has "
                f"dropout={module.dropout:g}, by which it draws a new mask at every evaluation, "
                f"but {need.reason}. Build it with dropout=0 and put a `graphode.Dropout` around "
                f"it, whose mask is fixed within a solve, or use a fixed-step solver with "
                f"gradient='backprop'."
            )
        if isinstance(module, Stochastic):
            need.check(module, path)
