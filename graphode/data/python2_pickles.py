"""Arrays, sparse matrices and lists out of old pickles, without running what is in them.

A pickle is a program: it may name any function of any module and call it. This reader knows a few
names only and gives each a stand-in of its own, which holds what came and checks it: numpy and
scipy are called afterwards, on plain numbers. Every other name is refused.
"""

import io
import math
import pickle
import re
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

PLAIN_NUMBER = re.compile(r"[biuf][1248]")
BYTE_ORDERS = ("<", ">", "|", "=")


class ForbiddenPickleError(ValueError):
    """A pickle that names what data has no need of."""


class _List(list):
    def __setstate__(self, state: object) -> None:
        raise ForbiddenPickleError("a list with attributes")


class _Dict(dict):
    def __init__(self, default: object = None) -> None:
        super().__init__()
        del default  # missing keys are errors here

    def __setstate__(self, state: object) -> None:
        raise ForbiddenPickleError("a dictionary with attributes")


class _Dtype:
    def __init__(self, code: str, align: object = 0, copy: object = 0) -> None:
        del align, copy
        if not (isinstance(code, str) and PLAIN_NUMBER.fullmatch(code)):
            raise ForbiddenPickleError(f"an array of {code!r}, not of plain numbers")
        self.code, self.order = code, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] not in BYTE_ORDERS or any(part is not None for part in state[2:5]):
            raise ForbiddenPickleError("an array of records, not of plain numbers")
        self.order = state[1]

    def dtype(self) -> np.dtype:
        return np.dtype(self.order.replace("|", "=") + self.code)


class _Array:
    """An ndarray: empty when it is made, as numpy's `_reconstruct` makes it, then given a state."""

    def __init__(self, kind: object = None, shape: object = (0,), code: object = b"b") -> None:
        del kind, shape, code
        self.array = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, by_columns, content = state
        if not isinstance(dtype, _Dtype) or not isinstance(content, str | bytes):
            raise ForbiddenPickleError("an array of objects")
        raw = content.encode("latin-1") if isinstance(content, str) else content
        if len(raw) != math.prod(shape) * dtype.dtype().itemsize:
            raise ForbiddenPickleError("an array of another size than it says")
        flat = np.frombuffer(raw, dtype.dtype())
        self.array = flat.reshape(shape, order="F" if by_columns else "C")


class _CSRMatrix:
    matrix: csr_matrix

    def __setstate__(self, state: dict[str, Any]) -> None:
        parts = [plain(state.get(name)) for name in ("data", "indices", "indptr")]
        if not all(isinstance(part, np.ndarray) for part in parts):
            raise ForbiddenPickleError("a sparse matrix without arrays")
        data, indices, indptr = parts
        # Bounds are checked before any compiled code walks through them.
        self.matrix = csr_matrix((data, indices, indptr), shape=state["_shape"])
        self.matrix.check_format(full_check=True)


class _Bytes:
    """`_codecs.encode(text, "latin1")`, or `bytes()`: how Python 3 writes bytes for Python 2."""

    def __new__(cls, text: str = "", encoding: str = "latin1") -> bytes:  # type: ignore[misc]
        if encoding not in ("latin1", "latin-1"):
            raise ForbiddenPickleError(f"text encoded as {encoding!r}")
        return text.encode("latin-1")


ADMITTED: dict[tuple[str, str], type] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("scipy.sparse.csr", "csr_matrix"): _CSRMatrix,
    ("scipy.sparse._csr", "csr_matrix"): _CSRMatrix,
    ("collections", "defaultdict"): _Dict,
    ("__builtin__", "list"): _List,
    ("builtins", "list"): _List,
    ("_codecs", "encode"): _Bytes,
    ("__builtin__", "bytes"): _Bytes,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in ADMITTED:
            raise ForbiddenPickleError(f"`{module}.{name}`")
        return ADMITTED[module, name]


def plain(value: object) -> Any:
    """The array or matrix that a stand-in stands for; other values as they are."""
    if isinstance(value, _Array):
        return value.array
    return value.matrix if isinstance(value, _CSRMatrix) else value


def read_pickle(content: bytes, name: str) -> Any:
    """The ndarray, csr_matrix, list or dictionary in a pickle of Python 2 or 3.

    Args:
        content: The pickle. Nothing in it is executed.
        name: For the error: the file that it comes from.
    """
    try:
        value = plain(_Reader(io.BytesIO(content), encoding="latin1").load())
    except ForbiddenPickleError as forbidden:
        raise ForbiddenPickleError(
            f"{name} is refused: a pickle of data must hold arrays of numbers, sparse matrices, "
            f"lists and dictionaries only, but it names {forbidden}. Nothing in it was executed. "
            "Get the file from its public source."
        ) from None
    except Exception as error:  # whatever a broken pickle makes of the stand-ins
        raise ValueError(
            f"{name} cannot be read as a pickle ({type(error).__name__}: {error}); it may be cut "
            "short. Get the file again from its public source."
        ) from error
    if not isinstance(value, np.ndarray | csr_matrix | list | dict):
        raise ValueError(
            f"{name} must hold an array, a sparse matrix, a list or a dictionary, but it holds a "
            f"{type(value).__name__}. Get the file from its public source."
        )
    return value
