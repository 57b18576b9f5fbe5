"""Which tensors a field depends on, so that no gradient is lost where autograd does not look.

`checkpoint` and the adjoints run the field outside autograd's sight and must name every tensor
that is to receive a gradient: tensors in `args` (also inside containers and registered classes),
parameters of a module, and whatever leaf a plain function depends on, found in what it closes over
and by following the autograd graph of one evaluation.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree


def argument_tensors(args: tuple[Any, ...]) -> list[Tensor]:
    """Tensors in `args` that want a gradient."""
    leaves = pytree.tree_leaves(args)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]


def detached_arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """`args` cut off from what computed them.

    Otherwise a parameter that the field uses directly and through an argument would be counted
    twice: once here, and once when autograd goes on from the argument's own gradient.
    """

    def cut(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.requires_grad and not leaf.is_leaf:
            return leaf.detach().requires_grad_()
        return leaf

    return pytree.tree_map(cut, args)


def field_tensors(
    f: Callable[..., Tensor], t: Tensor, y: Tensor, args: tuple[Any, ...]
) -> list[Tensor]:
    """Leaf tensors besides `args` that the field depends on and that want a gradient."""
    owner = getattr(f, "__self__", f)
    roots = _held_by(owner)
    if not isinstance(owner, nn.Module):
        # A module holds what it depends on; a function may also use what is global.
        with torch.enable_grad():
            roots.append(f(t, y.detach(), *args))
    given = argument_tensors(args)
    known = {id(leaf) for leaf in given}
    # What computed the arguments is autograd's own business.
    seen = {leaf.grad_fn for leaf in given}
    found: dict[int, Tensor] = {}
    stack = []
    for tensor in argument_tensors(tuple(roots)):
        if tensor.is_leaf and id(tensor) not in known:
            found[id(tensor)] = tensor
        stack.append(tensor.grad_fn)
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None and id(variable) not in known:
            found[id(variable)] = variable
        stack.extend(parent for parent, _ in node.next_functions)
    return list(found.values())


def _held_by(f: Any) -> list[Any]:
    """What a function closes over or an object holds: some of it may be used only later in time."""
    held = [cell.cell_contents for cell in getattr(f, "__closure__", None) or ()]
    if isinstance(f, functools.partial):
        held += [f.args, f.keywords, *_held_by(f.func)]
    leaves = pytree.tree_leaves([*held, getattr(f, "__dict__", {})])
    modules = [leaf.modules() for leaf in leaves if isinstance(leaf, nn.Module)]
    return [*leaves, *(vars(module) for group in modules for module in group)]
