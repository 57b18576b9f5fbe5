"""Which tensors a field depends on, so that no gradient is lost where autograd does not look.

`checkpoint` and the adjoints run the field outside autograd's sight and must name every tensor
that is to receive a gradient: tensors in `args` (also inside containers and registered classes),
parameters of a module, and whatever leaf a plain function closes over, found by following the
autograd graph of one evaluation.
"""

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
    if isinstance(owner, nn.Module):
        return _wanting(owner)
    found = {id(leaf): leaf for module in _closed_over(f) for leaf in _wanting(module)}
    with torch.enable_grad():
        value = f(t, y.detach(), *args)
    if not isinstance(value, Tensor):
        return list(found.values())
    given = argument_tensors(args)
    known = {id(leaf) for leaf in given}
    # What computed the arguments is autograd's own business.
    seen = {leaf.grad_fn for leaf in given}
    stack = [value.grad_fn]
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


def _wanting(module: nn.Module) -> list[Tensor]:
    return [leaf for leaf in (*module.parameters(), *module.buffers()) if leaf.requires_grad]


def _closed_over(f: Callable[..., Tensor]) -> list[nn.Module]:
    """Modules in a function's closure: some may be used only later in time."""
    contents = [cell.cell_contents for cell in getattr(f, "__closure__", None) or ()]
    return [content for content in contents if isinstance(content, nn.Module)]
