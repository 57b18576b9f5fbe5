"""How many members fit into memory, measured on one of them."""

import gc
import os
from collections.abc import Callable

import torch
from torch import nn

from graphode.ensembles.ensemble import Ensemble

# Of the memory that is free: the rest is for what one step of one member does not show, such as
# an optimiser's moments and the allocator's gaps.
SHARE = 0.5
_programs = 1


def share_memory(programs: int) -> None:
    """Leave room for so many programs on the device, this one among them, that begin together."""
    global _programs
    _programs = programs


def programs_beside() -> int:
    """How many programs share the device, as far as this one was told, itself among them."""
    return _programs


def members_that_fit(
    build: Callable[[int], nn.Module],
    step: Callable[[Ensemble], object],
    device: torch.device | str = "cpu",
    *,
    free: int | None = None,
    seed: int = 0,
) -> int:
    """The largest number of members whose training step fits into the memory that is free.

    What grows with members is counted on two small ensembles, of one member and of two: their
    parameters, gradients and two moments, and all that the forward pass keeps for the backward
    one.

    Args:
        build: As for `Ensemble`.
        step: Forward pass and loss of an ensemble; returns the loss.
        device: Where it will run.
        free: Bytes that may be used; by default those that the device has free.
        seed: Of the members that are tried.
    """
    device = torch.device(device)
    one, two = (_bytes_of(build, step, device, count, seed) for count in (1, 2))
    each = max(two - one, 1)
    available = SHARE / _programs * (free_bytes(device) if free is None else free)
    fixed = one - each
    return max(1, int((available - fixed) // each))


def free_bytes(device: torch.device) -> int:
    """Memory that is free on a device."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _bytes_of(
    build: Callable[[int], nn.Module],
    step: Callable[[Ensemble], object],
    device: torch.device,
    count: int,
    seed: int,
) -> int:
    ensemble = Ensemble(build, range(seed, seed + count)).to(device)
    storages: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = step(ensemble)
    del result
    parameters = sum(p.numel() * p.element_size() for p in ensemble.parameters())
    return sum(storages.values()) + 4 * parameters
