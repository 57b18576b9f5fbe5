"""The C library's heap, for programs that train.

A training step frees all that it has computed, and the next one asks for as much again. By default
glibc gives freed memory back to the kernel, which hands it out page by page, zeroed: on a CPU up to
a quarter of a step's time (an epoch of five members of GCDE-dpr5 on Cora, 341 ms against 250).
"""

import ctypes
import sys

# Of `mallopt`, from malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_NEVER = 2**31 - 1  # bytes: the most that an int can say
_MOST = 1 << 25  # bytes: the most that an older glibc takes for the second, says its manual


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, and whether that could be done.

    For whole programs, such as the command line: it is a choice for all that runs in the process.
    Only glibc has it.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # In this order: the other one by itself would have large blocks come from the kernel for good.
    if not any(mallopt(_M_MMAP_THRESHOLD, size) for size in (_NEVER, _MOST)):
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _NEVER))
