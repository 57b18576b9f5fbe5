"""State that a module keeps outside its buffers, as far as it is easily seen.

Members that are alike are evaluated as one module: what it keeps in a plain attribute, a counter
or the state of before, all of them share.
"""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from graphode.ensembles.copies import parts_of

NUMBERS = (bool, int, float, complex)

# Where modules hold their parameters and buffers by name, or look them up by it.
BY_NAME = ("_parameters", "_buffers", "_modules", "_flat_weights")


def plain_state(module: nn.Module) -> dict[tuple[str, str], Any]:
    """Numbers and tensors in the plain attributes of a module and its parts, by path and name."""
    return {
        (path, name): value
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if isinstance(value, (*NUMBERS, Tensor))
    }


def second_hold(module: nn.Module) -> tuple[str, str] | None:
    """A plain attribute that holds a parameter or buffer of the module, and the name of that.

    An ensemble puts each member's tensors where they have their names, and nowhere else.
    """
    names = {id(t): name for name, t in [*module.named_parameters(), *module.named_buffers()]}
    for path, part in module.named_modules():
        for attribute, value in vars(part).items():
            if attribute not in BY_NAME:
                for tensor in _tensors_in(value):
                    if id(tensor) in names:
                        return f"{path}.{attribute}" if path else attribute, names[id(tensor)]
    return None


def _tensors_in(value: Any) -> Iterator[Tensor]:
    """Those in containers, which may hold themselves, and in what functions close over."""
    waiting, met = [value], set()
    while waiting:
        held = waiting.pop()
        if isinstance(held, Tensor):
            yield held
        elif id(held) not in met:
            met.add(id(held))
            waiting.extend(parts_of(held))


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
