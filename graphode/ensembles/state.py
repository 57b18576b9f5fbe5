"""State that a module keeps outside its buffers, as far as it is easily seen.

Members that are alike are evaluated as one module: what it keeps in a plain attribute, a counter
or the state of before, all of them share.
"""

from typing import Any

from torch import Tensor, nn

NUMBERS = (bool, int, float, complex)


def plain_state(module: nn.Module) -> dict[tuple[str, str], Any]:
    """Numbers and tensors in the plain attributes of a module and its parts, by path and name."""
    return {
        (path, name): value
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if isinstance(value, (*NUMBERS, Tensor))
    }


def changed_attribute(
    module: nn.Module, before: dict[tuple[str, str], Any]
) -> tuple[str, str] | None:
    """Path and name of an attribute that is no longer what it was, if there is one.

    Args:
        module: As it is now.
        before: Its `plain_state` of then.
    """
    for place, value in plain_state(module).items():
        was = before.get(place)
        if isinstance(value, NUMBERS) and isinstance(was, NUMBERS):
            changed = value != was and value == value
        else:
            changed = value is not was
        if changed:
            return place
    return None
