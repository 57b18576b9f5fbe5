"""Features that are mostly zero, such as bags of words, kept sparse through the first layer."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphode.flows.masks import hashed
from graphode.graphs.convert import chosen_nodes
from graphode.graphs.derivatives import Sparsity
from graphode.graphs.pattern import compressed
from graphode.graphs.validation import ArrayLike
from graphode.models.feature_product import feature_product


class SparseFeatures:
    """A constant matrix X of nodes × features by its non-zeros: frozen, converted once.

        x @ weight = X W,    one sparse product

    Values receive no gradient: they are data. Entries given twice are summed, stored zeros are
    dropped.

    Args:
        matrix: A SciPy sparse matrix, a sparse torch tensor of any layout, or a dense tensor or
            array, `[nodes, features]`. Whole numbers and booleans become the default dtype.

    Attributes:
        values: The non-zeros, row after row, `[entries]`; after dropout under a seed per member
            `[*members, entries]`.
        shape: (nodes, features).
    """

    values: Float[Tensor, "*members entries"]
    shape: tuple[int, int]
    _places: Sparsity

    def __init__(self, matrix: Any) -> None:
        rows, columns, values, shape = _entries(matrix)
        _check_values(values, rows, columns)
        kept = values.nonzero()[:, 0]
        self._fill(values[kept], shape, compressed(rows[kept], columns[kept], *shape))

    def multiply(
        self, weight: Float[Tensor, "*members features channels"]
    ) -> Float[Tensor, "*all_members nodes channels"]:
        """X W, with gradients to the weight; also written `x @ weight`."""
        if weight.ndim < 2 or weight.shape[-2] != self.shape[1]:
            raise ValueError(
                f"The weight must have shape [..., {self.shape[1]}, channels], a row for each "
                f"feature, but has shape {list(weight.shape)}. Build the layer for "
                f"{self.shape[1]} features."
            )
        if weight.device != self.device:
            raise ValueError(
                f"Features and weight must be on one device, but are on {self.device} and "
                f'{weight.device}. Move the features once with `x.to("{weight.device}")`.'
            )
        return feature_product(self.values.to(weight.dtype), weight, self._places)

    def __matmul__(self, weight: Tensor) -> Tensor:
        return self.multiply(weight)

    def row_normalize(self) -> SparseFeatures:
        """Each row divided by its sum; rows that sum to zero become zero."""
        sums = self.values.new_zeros(self.shape[0]).index_add(0, self._rows, self.values)
        factor = torch.where(sums == 0, 0.0, 1 / sums)
        return self.with_values(self.values * factor[self._rows])

    def with_values(self, values: Float[Tensor, "*members entries"]) -> SparseFeatures:
        """Other values at the same places; zeros among them stay stored."""
        if values.ndim < 1 or values.shape[-1] != self.num_entries:
            raise ValueError(
                f"`values` must have shape [..., {self.num_entries}], one for each entry that is "
                f"stored, but has shape {list(values.shape)}. Give them in the order of `x.values`."
            )
        if values.device != self.device:
            raise ValueError(
                f"`values` must be on the features' device, {self.device}, but are on "
                f'{values.device}. Move the features once with `x.to("{values.device}")`.'
            )
        _check_dtype(values.dtype)
        return self._like(values, self._places)

    def take(self, nodes: ArrayLike) -> SparseFeatures:
        """The rows of some nodes, in their order; a boolean mask also selects."""
        nodes = chosen_nodes(nodes, self.shape[0], self.device)
        counts = self._places.crow.diff().long()[nodes]
        start = self._places.crow[:-1].long()[nodes] - (counts.cumsum(0) - counts)
        rows = torch.repeat_interleave(counts)
        entries = torch.arange(len(rows), device=self.device) + start[rows]
        shape = (len(nodes), self.shape[1])
        places = compressed(rows, self._places.col[entries].long(), *shape)
        features = self._like(self.values[..., entries], places)
        features.__dict__["shape"] = shape
        return features

    def to(self, *args: Any, **kwargs: Any) -> SparseFeatures:
        """The same on another device, or in another dtype, as `Tensor.to`."""
        values = self.values.to(*args, **kwargs)
        _check_dtype(values.dtype)
        places = Sparsity(*(part.to(values.device) for part in self._places))
        return self._like(values, places)

    def to_dense(self) -> Float[Tensor, "*members nodes features"]:
        """The matrix with its zeros."""
        zeros = self.values.new_zeros(*self.values.shape[:-1], *self.shape)
        zeros[..., self._rows, self._places.col.long()] = self.values
        return zeros

    @cached_property
    def hashed_positions(self) -> Int[Tensor, " entries"]:
        """The hashed place of each entry in the dense matrix; see `flows.masks`."""
        with torch.inference_mode(False):  # it is kept, and serves later gradients
            return hashed(self._rows.long() * self.shape[1] + self._places.col)

    @property
    def num_entries(self) -> int:
        """How many entries are stored."""
        return self._places.col.numel()

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the values."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Where the values are."""
        return self.values.device

    @property
    def _rows(self) -> Tensor:
        return torch.repeat_interleave(self._places.crow.diff(), output_size=self.num_entries)

    def _like(self, values: Tensor, places: Sparsity) -> SparseFeatures:
        features = object.__new__(SparseFeatures)
        features._fill(values, self.shape, places)
        return features

    def _fill(self, values: Tensor, shape: tuple[int, int], places: Sparsity) -> None:
        self.__dict__.update(values=values, shape=shape, _places=places)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"SparseFeatures are frozen: `{name}` cannot be set. Use `x.with_values(…)`, or "
            "convert another matrix."
        )

    def __repr__(self) -> str:
        nodes, features = self.shape
        dtype = str(self.dtype).removeprefix("torch.")
        return (
            f"SparseFeatures({nodes} × {features}, {self.num_entries} entries, dtype={dtype}, "
            f"device={str(self.device)!r})"
        )


def _entries(matrix: Any) -> tuple[Tensor, Tensor, Tensor, tuple[int, int]]:
    """Rows, columns and values, sorted by row, then column, none twice."""
    if hasattr(matrix, "tocoo"):
        coo = matrix.tocoo()
        values = torch.as_tensor(coo.data)
        index = torch.as_tensor(np.stack([coo.row, coo.col]).astype(np.int64))
        matrix = torch.sparse_coo_tensor(index, values, coo.shape)
    if not isinstance(matrix, Tensor):
        matrix = torch.as_tensor(matrix)
    if matrix.ndim != 2:
        raise ValueError(
            f"Sparse features must be a matrix [nodes, features], but have shape "
            f"{list(matrix.shape)}. For features with leading dimensions use a dense tensor."
        )
    if matrix.requires_grad or matrix.dtype.is_complex:
        raise TypeError(
            f"Sparse features are real constants, but the matrix has dtype {matrix.dtype} and "
            f"requires_grad={matrix.requires_grad}. Detach it, or keep features that are learned "
            f"in a dense tensor."
        )
    coo = matrix.to_sparse_coo().coalesce()
    values = coo.values()
    if not values.dtype.is_floating_point:
        values = values.to(torch.get_default_dtype())
    rows, columns = coo.indices()
    return rows, columns, values, (matrix.shape[0], matrix.shape[1])


def _check_values(values: Tensor, rows: Tensor, columns: Tensor) -> None:
    finite = values.isfinite()
    if not bool(finite.all()):
        k = int((~finite).nonzero()[0])
        raise ValueError(
            f"Features must be finite, but node {int(rows[k])} has {values[k].item()} as feature "
            f"{int(columns[k])}; {int((~finite).sum())} are not finite. Repair or drop them."
        )


def _check_dtype(dtype: torch.dtype) -> None:
    if not dtype.is_floating_point:
        raise TypeError(
            f"Features must have a real floating dtype, but {dtype} was given. Choose that of the "
            f"layer that they go to."
        )
