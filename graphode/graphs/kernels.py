"""The two sparse kernels under every graph operator, on raw CSR arrays, without gradients.

    multiply:  out[i] = Σ_k values[k] h[col[k]],   k in row i
    sample:    out[k] = ⟨a[row k], b[col[k]]⟩,      k over the stored entries

Both take several matrices on one pattern too (see `derivatives`): on a GPU where Triton is, by
kernels of our own, else one product for each.

Which PyTorch kernel serves which device was measured: `benchmarks/propagate.py --only kernels`. On
a CPU, FBGEMM's embedding bag takes half the time of MKL's CSR product at 64 channels; it has no
float64 path, where PyTorch's own CSR reduction is best; MKL wins where the product is small. On a
GPU it is cuSPARSE's product. None of them makes a tensor of size edges × channels.
"""

import functools
import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Elements a chunk of the fallback may hold: bounds its memory at 16 MiB of float32.
CHUNK_ELEMENTS = 1 << 22

# Multiplications below which starting threads costs more than they save (measured).
SMALL_PRODUCT = 1 << 15
LARGE_PRODUCT = 1 << 18
HAS_MKL = torch.backends.mkl.is_available()

# Where Triton kernels serve. Its interpreter runs them on a CPU too, for tests.
TRITON_DEVICES = {"cuda"}

# PyTorch warns once per process that CSR tensors are beta; users of a graph need not hear it.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 0], torch.empty(0, dtype=torch.int64), torch.empty(0), (1, 1))


def in_own_dtype(kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Keep autocast out: a product has the dtype of its state, and its gradient the same."""

    @functools.wraps(kernel)
    def wrapped(first: Tensor, *rest: Any) -> Tensor:
        if not torch.is_autocast_enabled(first.device.type):
            return kernel(first, *rest)
        with torch.autocast(first.device.type, enabled=False):
            return kernel(first, *rest)

    return wrapped


def has_triton(x: Tensor) -> bool:
    """Whether our Triton kernels serve tensors like this one."""
    suits = x.device.type in TRITON_DEVICES and x.dtype in (torch.float32, torch.float64)
    return suits and _is_triton_installed()


@functools.cache
def _is_triton_installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def _heads_kernel() -> Any:
    from graphode.graphs import heads_kernel

    return heads_kernel


def joins_columns(values: Tensor, h: Tensor) -> bool:
    """Whether samples `[samples, nodes, channels]` are best made columns of one wide product.

    That copies the state twice. Where the product of one sample is large, it costs more than it
    saves (measured: 16 samples of Cora at 64 channels, 10.5 ms against 2.9 ms on one core), and on
    a GPU a kernel of our own takes samples as they are.
    """
    if has_triton(h):
        return False
    return h.device.type != "cpu" or values.numel() * h.shape[-1] < LARGE_PRODUCT


@in_own_dtype
def multiply(values: Tensor, h: Tensor, crow: Tensor, col: Tensor) -> Tensor:
    """The sparse product of a CSR matrix and a dense matrix, `[*samples, nodes, columns]`.

    The matrix may be rectangular, of any number of rows.
    """
    if values.numel() == 0 or h.numel() == 0:
        return h.new_zeros(*h.shape[:-2], crow.numel() - 1, h.shape[-1])
    if h.dim() == 3:
        if has_triton(h):
            from graphode.graphs import batched_kernel

            return batched_kernel.multiply(values, h, crow, col)
        if len(h) == 1:
            return multiply(values, h[0], crow, col)[None]
        return torch.stack([multiply(values, sample, crow, col) for sample in h])
    if values.dim() == 2:
        if has_triton(h):
            return _heads_kernel().multiply(values, h, crow, col)
        blocks = zip(values.unbind(1), h.chunk(values.shape[1], 1), strict=True)
        return torch.cat([multiply(column, block, crow, col) for column, block in blocks], 1)
    # The kernels read memory in a row: a column of attention weights is not laid out so.
    h, values = h.contiguous(), values.contiguous()
    on_cpu = h.device.type == "cpu"
    if on_cpu and not _suits_mkl(values, h):
        if h.dtype == torch.float64:
            matrix = _csr(values, crow, col, len(h))
            return torch.ops.aten._sparse_mm_reduce_impl(matrix, h, "sum")[0]
        # Positional: scale_grad_by_freq, mode "sum", sparse, weights, include_last_offset.
        bag = torch.ops.aten._embedding_bag_forward_only
        return bag(h, col, crow, False, 0, False, values, True)[0]
    return torch.mm(_csr(values, crow, col, len(h)), h)


def _suits_mkl(values: Tensor, h: Tensor) -> bool:
    # The others start threads for the smallest of products, which then wait for each other: 5 µs
    # become milliseconds where cores are shared, as they are when tests run side by side.
    is_small = values.numel() * h.shape[1] < SMALL_PRODUCT
    return is_small and h.dtype in (torch.float32, torch.float64) and HAS_MKL


@in_own_dtype
def sample(a: Tensor, b: Tensor, crow: Tensor, col: Tensor, heads: int | None = None) -> Tensor:
    """The entries of a bᵀ at the stored places of a CSR pattern: one inner product an edge.

    Those of samples `[samples, nodes, columns]` are added up.
    """
    if a.dim() == 3:
        a, b = (x.movedim(0, 1).flatten(1) for x in (a, b))
    if col.numel() == 0 or a.numel() == 0:
        return a.new_zeros(col.shape if heads is None else (*col.shape, heads))
    if heads is not None:
        if has_triton(a):
            return _heads_kernel().sample(a, b, crow, col, heads)
        blocks = zip(a.chunk(heads, 1), b.chunk(heads, 1), strict=True)
        return torch.stack([sample(of_a, of_b, crow, col) for of_a, of_b in blocks], 1)
    if a.dtype not in (torch.float32, torch.float64):
        return _sample_in_chunks(a, b, crow, col)
    if a.device.type == "cpu" and a.shape[1] % 16 and a.shape[1] > 1:
        # The CPU kernel is vectorised over whole registers only: padding 7 to 16 columns is 5 ×
        # faster on 2 million edges.
        padding = (0, -a.shape[1] % 16)
        a, b = F.pad(a, padding), F.pad(b, padding)
    # With beta = 0 the values of the input matrix are not read, only its pattern.
    pattern = _csr(a.new_zeros(()).expand(col.shape).contiguous(), crow, col, len(b))
    return torch.sparse.sampled_addmm(
        pattern, a.contiguous(), b.contiguous().t(), beta=0.0
    ).values()


def _sample_in_chunks(a: Tensor, b: Tensor, crow: Tensor, col: Tensor) -> Tensor:
    row = torch.repeat_interleave(crow.diff(), output_size=col.numel())
    chunk = max(1, CHUNK_ELEMENTS // a.shape[1])
    pieces = [
        (a[r].float() * b[c].float()).sum(-1).to(a.dtype)
        for r, c in zip(row.split(chunk), col.split(chunk), strict=True)
    ]
    return torch.cat(pieces)


def _csr(values: Tensor, crow: Tensor, col: Tensor, columns: int) -> Tensor:
    size = (crow.numel() - 1, columns)
    return torch.sparse_csr_tensor(crow, col, values, size, check_invariants=False)
