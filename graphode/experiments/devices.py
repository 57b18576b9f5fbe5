"""Where a run computes, and whether it may leave the order of sums to chance."""

import contextlib
import os
from collections.abc import Iterator

import torch


def device_name(name: str) -> str:
    """The name itself; of "auto" that of a GPU where there is one, else of the CPU."""
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def find_device(name: str) -> torch.device:
    """The device of that name, or of "auto"; an error if it is not here."""
    name = device_name(name)
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(
            f"Unknown device {name!r}. Use for example cpu, cuda or cuda:1."
        ) from error
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        raise ValueError(
            f"There is no device {name!r} here: PyTorch sees {count} GPUs. Use --device cpu, or "
            f"install a PyTorch built for CUDA."
        )
    return device


@contextlib.contextmanager
def determinism(asked: bool) -> Iterator[None]:
    """Only deterministic kernels inside, where asked for; as before afterwards."""
    if not asked:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    # cuBLAS reads it when it is first used; without it torch refuses to promise anything.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
