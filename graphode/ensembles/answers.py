"""What members answer: tensors, which become one with the members first, and what all share."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

# Nothing of a member can hide in them.
PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)


def flattened(answer: Any, given: Sequence[Any]) -> tuple[list[Any], Any]:
    """The leaves of an answer, and its structure; what was given is not looked into.

    Args:
        answer: A tensor or a nest of some.
        given: What all members were given, and may hand on: a graph, say.
    """
    return pytree.tree_flatten(answer, lambda node: any(node is value for value in given))


def joined_answers(answers: Sequence[Any], given: Sequence[Any]) -> Any:
    """One answer of the answers of all members, one of each."""
    leaves, structures = zip(*(flattened(answer, given) for answer in answers), strict=True)
    for answer, structure in zip(answers, structures, strict=True):
        if structure != structures[0]:
            kinds = [
                f"a {type(a).__name__} of {s.num_leaves}"
                for a, s in ((answers[0], structures[0]), (answer, structure))
            ]
            raise TypeError(
                f"Members must answer alike, but one answers with {kinds[0]} and another with "
                f"{kinds[1]}. Return tensors in the same places for every member."
            )
    parts = [joined(leaf, given) for leaf in zip(*leaves, strict=True)]
    return pytree.tree_unflatten(parts, structures[0])


def joined(parts: Sequence[Any], given: Sequence[Any] = ()) -> Any:
    """One thing of each member as one: tensors stacked, anything else if all have the same.

    A tensor alone is not copied.
    """
    if all(isinstance(part, Tensor) for part in parts):
        return parts[0][None] if len(parts) == 1 else torch.stack(list(parts))
    first = parts[0]
    others = [part for part in parts if not _same(part, first)]
    if not others and (isinstance(first, PLAIN) or any(first is value for value in given)):
        return first
    came = " and ".join(f"{value!r}" for value in (first, *others[:1]))
    raise TypeError(
        f"Members must answer with tensors, or with a plain value that is the same for all of "
        f"them, but {came} came. Return a tensor, or a list, tuple or dictionary of tensors."
    )


def _same(one: Any, two: Any) -> bool:
    return one is two or (type(one) is type(two) and isinstance(one, PLAIN) and one == two)
