"""`torch.autograd.Function`s applied without what only `torch.func` needs.

`Function.apply` asks Python for the signature of `forward` at every call, which takes the host
longer than the rest of it, forward and backward together.
"""

from typing import Any

import torch


def applied(function: type[torch.autograd.Function], *args: Any) -> Any:
    """`function.apply(*args)`, of all the arguments that its `forward` takes."""
    if torch._C._are_functorch_transforms_active():
        return function.apply(*args)
    return super(torch.autograd.Function, function).apply(*args)  # pyright: ignore[reportAttributeAccessIssue]
