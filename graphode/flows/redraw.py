"""What the masks of a field are to a solver: whether it is a function, and of what.

Error control, adjoints and checkpoints rely on a field that gives the same at the same place. One
whose masks change on the way is refused where they do, with the reason and what to do.
"""

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


def may_draw(f: object) -> bool:
    """Whether a field can ask for masks; of a plain function nothing is known."""
    if not isinstance(f, nn.Module):
        return True
    return any(isinstance(module, Stochastic) for module in f.modules())


def changes_by_step(f: object) -> bool:
    """Whether a field is another function in the next step than in this one."""
    if not isinstance(f, nn.Module):
        return False
    drawing = (m for m in f.modules() if isinstance(m, Stochastic) and m.is_active)
    return any(module.redraw == "per_step" for module in drawing)


def _draws_by_itself(module: nn.Module) -> bool:
    """Whether a layer of torch's or PyG's has a rate of dropout as a number.

    A module with masks of ours in it has given them the number.
    """
    rate = getattr(module, "dropout", 0.0)
    if not isinstance(rate, float) or rate <= 0:
        return False
    return not any(isinstance(part, Stochastic) for part in module.modules())


def check_redraw(f: object, *, adaptive: bool, adjoint: bool, recomputed: bool) -> None:
    """Refuse masks that change while the solver relies on the field being a function.

    Args:
        f: The field; of a plain function nothing is known.
        adaptive: Whether the solver estimates its error.
        adjoint: Whether the gradient comes from a backward solve.
        recomputed: Whether the backward pass evaluates the field again, as adjoints and checkpoints
            do. Masks with a key then come back, torch's do not.
    """
    if not isinstance(f, nn.Module) or not (adaptive or recomputed):
        return
    if adjoint:
        reason = (
            "an adjoint solves the field backwards, at other points, and needs the masks of the "
            "forward solve"
        )
    elif adaptive:
        reason = "an adaptive solver takes the redrawn masks for error and cuts its steps down"
    else:
        reason = "checkpoints evaluate the field again, and need the masks of the forward solve"
    for path, module in f.named_modules():
        if not module.training:
            continue
        if isinstance(module, TORCH_DROPOUT) and module.p > 0:
            raise ValueError(
                f"Module {path or 'field'!r} is torch's {type(module).__name__}, which draws a new "
                f"mask at every evaluation, but {reason}. Use `graphode.Dropout({module.p:g})`, "
                f"whose mask is fixed within a solve, or a fixed-step solver with "
                f"gradient='backprop'."
            )
        if _draws_by_itself(module):
            raise ValueError(
                f"Module {path or 'field'!r} ({type(module).__name__}) has "
                f"dropout={module.dropout:g}, by which it draws a new mask at every evaluation, "
                f"but {reason}. Build it with dropout=0 and put a `graphode.Dropout` around it, "
                f"whose mask is fixed within a solve, or use a fixed-step solver with "
                f"gradient='backprop'."
            )
        if not isinstance(module, Stochastic) or module.force:
            continue
        breaks = adjoint or (adaptive and module.redraw == "per_eval")
        if breaks and module.redraw != "per_solve":
            raise ValueError(
                f"Module {path or 'field'!r} draws its masks {module.redraw}, but {reason}. Use "
                f"redraw='per_solve' (the default), a fixed-step solver with gradient='backprop' "
                f"or 'checkpoint', or force=True to do it all the same."
            )
