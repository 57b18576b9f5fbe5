"""The derivatives of the two sparse products, each again one of the two.

    y = A(w) h          ⇒   ∂h = A(w)ᵀ ∂y,    ∂w = sampled(∂y, h)
    w = sampled(a, b)   ⇒   ∂a = A(∂w) b,     ∂b = A(∂w)ᵀ a

So derivatives of every order exist, and none needs a tensor of size edges × channels. The products
are arguments here: eager, compiled and transformed code differentiate by the same formulas.

Several matrices may share one pattern, as the heads of attention do: values are then
[entries, heads], and the columns of a state fall into as many blocks of equal width, of which the
k-th is multiplied by the k-th matrix.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor


class Sparsity(NamedTuple):
    """The places of a sparse matrix and of its transpose, both as CSR.

    Entry k of the transpose is entry `order[k]` of the matrix; `inverse` undoes `order`.
    """

    crow: Tensor
    col: Tensor
    crow_t: Tensor
    col_t: Tensor
    order: Tensor
    inverse: Tensor

    @property
    def transposed(self) -> "Sparsity":
        """The same with the roles of matrix and transpose exchanged."""
        return Sparsity(self.crow_t, self.col_t, self.crow, self.col, self.inverse, self.order)

    def repeated(self, count: int) -> "Sparsity":
        """The block-diagonal matrix of `count` copies; nothing is sorted, so it may be traced."""
        num_rows, num_columns = self.crow.numel() - 1, self.crow_t.numel() - 1
        entries = self.col.numel()
        fits = count * max(num_rows, num_columns, entries) < torch.iinfo(torch.int32).max
        index_type = torch.int32 if fits else torch.int64
        block = torch.arange(count, device=self.col.device)[:, None]

        def rows(crow: Tensor) -> Tensor:
            last = crow.new_full((1,), count * entries, dtype=index_type)
            return torch.cat([(crow[:-1] + block * entries).to(index_type).flatten(), last])

        def shifted(index: Tensor, by: int) -> Tensor:
            return (index + block * by).to(index_type).flatten()

        return Sparsity(
            rows(self.crow),
            shifted(self.col, num_columns),
            rows(self.crow_t),
            shifted(self.col_t, num_rows),
            shifted(self.order, entries),
            shifted(self.inverse, entries),
        )


@runtime_checkable
class Product(Protocol):
    """A h, for `h [nodes, columns]` and A's entries `values` in CSR order, [entries, *heads].

    `values_t`, the entries of Aᵀ in its CSR order, saves the backward pass a permutation; it is
    given only for constant values, since it receives no gradient.
    """

    def __call__(
        self, values: Tensor, values_t: Tensor | None, h: Tensor, places: Sparsity
    ) -> Tensor: ...


@runtime_checkable
class Sampled(Protocol):
    """⟨a[i], b[j]⟩ for every stored entry (i, j), in CSR order; with `heads` block by block."""

    def __call__(
        self, a: Tensor, b: Tensor, places: Sparsity, heads: int | None = None
    ) -> Tensor: ...


def product_gradients(
    product: Product,
    sampled: Sampled,
    needs: tuple[bool, ...],
    values: Tensor,
    values_t: Tensor | None,
    h: Tensor | None,
    places: Sparsity,
    grad: Tensor,
) -> tuple[Tensor | None, Tensor | None]:
    """∂w and ∂h of y = A(w) h; `h` may be None where the values need no gradient."""
    grad_values, grad_h = None, None
    if needs[0]:
        assert h is not None
        grad_values = sampled(grad, h, places, values.shape[1] if values.dim() == 2 else None)
    if needs[2]:
        if values_t is None:
            grad_h = product(values.index_select(0, places.order), None, grad, places.transposed)
        else:
            grad_h = product(values_t, values, grad, places.transposed)
    return grad_values, grad_h


def sampled_gradients(
    product: Product,
    needs: tuple[bool, ...],
    a: Tensor,
    b: Tensor,
    places: Sparsity,
    grad: Tensor,
) -> tuple[Tensor | None, Tensor | None]:
    """∂a and ∂b of w = sampled(a, b)."""
    grad_a, grad_b = None, None
    if needs[0]:
        grad_a = product(grad, None, b, places)
    if needs[1]:
        grad_b = product(grad.index_select(0, places.order), None, a, places.transposed)
    return grad_a, grad_b
