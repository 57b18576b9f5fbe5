"""Where most of a state is dropped, the sparse product is the dense one: values and derivatives."""

import pytest
import torch

import graphode as gd
from graphode.fields import sparse_mixing
from graphode.fields.fused_convolution import mix
from graphode.fields.sparse_mixing import listed, mixed_sparsely

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13}


@pytest.fixture(autouse=True)
def small_states(monkeypatch):
    monkeypatch.setattr(sparse_mixing, "LARGE", 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sparse_mixing_equals_dropout_and_a_dense_product(dtype: torch.dtype):
    h = torch.randn(50, 12, dtype=dtype, requires_grad=True)
    weight = torch.randn(12, 7, dtype=dtype, requires_grad=True)
    pull = torch.randn(50, 7, dtype=dtype)
    dropout = gd.Dropout(0.9)
    with gd.stochastic(3, 5):
        sparse = mixed_sparsely(h, weight, dropout)
        dense = dropout(h) @ weight
    assert sparse is not None
    assert 0 < (dense != 0).double().mean() < 1
    found = [sparse, *torch.autograd.grad((sparse * pull).sum(), [h, weight])]
    expected = [dense, *torch.autograd.grad((dense * pull).sum(), [h, weight])]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_sparse_mixing_has_second_derivatives():
    h = torch.randn(6, 5, requires_grad=True)
    weight = torch.randn(5, 4, requires_grad=True)
    dropout = gd.Dropout(0.8)

    def mixed(h, weight):
        with gd.stochastic(1, 1):
            mixed = mixed_sparsely(h, weight, dropout)
        assert mixed is not None
        return torch.tanh(mixed)

    assert torch.autograd.gradcheck(mixed, (h, weight))
    assert torch.autograd.gradgradcheck(mixed, (h, weight))


@pytest.mark.parametrize("redraw", ["per_solve", "per_step", "per_eval"])
def test_a_flow_mixes_sparsely_what_it_mixes_densely(redraw, monkeypatch):
    field = gd.GraphConvField([8, 8, 8], dropout=0.9, redraw=redraw)
    graph = gd.Graph(torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), 4).normalize("sym")
    flow = gd.Flow(field, solver="rk4", num_steps=3)
    h, ends = torch.randn(4, 8), []
    for few in (0.2, 0.0):
        monkeypatch.setattr(sparse_mixing, "FEW", few)
        with gd.stochastic(0, 0):
            ends.append(flow(h, graph))
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-12, atol=1e-13)


def test_samples_with_masks_of_their_own_are_mixed_densely():
    h, weight, dropout = torch.randn(2, 9, 4), torch.randn(4, 4), gd.Dropout(0.9)
    with gd.stochastic(0, 0, torch.tensor([4, 9])):
        together = mix(h, weight, dropout)
        assert torch.equal(together, dropout(h) @ weight)
        assert mixed_sparsely(h[0], weight, dropout) is None


def test_nothing_kept_is_nothing_mixed():
    empty = listed(torch.zeros(3, 4, dtype=torch.bool).numpy())
    assert empty.entries.numel() == 0
    assert empty.places.crow.tolist() == [0, 0, 0, 0]
    assert empty.places.crow_t.tolist() == [0, 0, 0, 0, 0]


def test_derivatives_of_sparse_mixing_can_be_mapped():
    h, weight = torch.randn(20, 5, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    with gd.stochastic(1, 2):
        y = mixed_sparsely(h, weight, gd.Dropout(0.85))
    assert y is not None
    pulls = torch.randn(4, 20, 3)

    def pulled(pull):
        return torch.autograd.grad(y, (h, weight), pull, retain_graph=True)

    mapped = torch.vmap(pulled)(pulls)
    for k, pull in enumerate(pulls):
        for together, alone in zip(mapped, pulled(pull), strict=True):
            torch.testing.assert_close(together[k], alone)
