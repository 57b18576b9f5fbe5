"""Sparse features are their matrix, without its zeros."""

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

import graphode as gd
from graphode import models as M
from graphode.graphs.compiled import _product
from graphode.models.encoder import FeatureDropout
from graphode.models.feature_product import feature_product
from tests.models.registry import bag_of_words, random_graph

FORMS = {
    "dense": lambda x: x,
    "array": lambda x: x.numpy(),
    "whole numbers": lambda x: x.long(),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "coo": lambda x: x.to_sparse_coo(),
    "scipy csr": lambda x: scipy.sparse.csr_array(x.numpy()),
    "scipy coo": lambda x: scipy.sparse.coo_matrix(x.numpy()),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@pytest.mark.filterwarnings("ignore:Sparse CSC")
def test_every_form_gives_the_same_features(form):
    x = bag_of_words(7, 9)
    features = M.SparseFeatures(form(x))
    assert features.shape == (7, 9)
    assert features.num_entries == int((x != 0).sum())
    assert torch.equal(features.to_dense(), x)


def test_entries_given_twice_are_summed_and_stored_zeros_dropped():
    index = torch.tensor([[0, 0, 1, 2], [1, 1, 0, 2]])
    values = torch.tensor([1.0, 2.0, 0.0, 5.0])
    features = M.SparseFeatures(torch.sparse_coo_tensor(index, values, (3, 3)))
    assert features.num_entries == 2
    assert features.to_dense().tolist() == [[0, 3, 0], [0, 0, 0], [0, 0, 5]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(7, 9), (9, 4), (300, 200)])
def test_the_product_and_its_gradient_are_those_of_the_dense_one(shape, dtype: torch.dtype):
    x = bag_of_words(*shape)
    features, x = M.SparseFeatures(x), x.to(dtype)
    weight = torch.randn(shape[1], 3, dtype=dtype, requires_grad=True)
    torch.testing.assert_close(features @ weight, x @ weight)
    seed = torch.randn(shape[0], 3, dtype=dtype)
    gradients = [
        torch.autograd.grad((product * seed).sum(), weight)[0]
        for product in (features @ weight, x @ weight)
    ]
    torch.testing.assert_close(*gradients)


def test_gradcheck_of_the_weight():
    features = M.SparseFeatures(bag_of_words())
    weight = torch.randn(5, 3, requires_grad=True)
    torch.autograd.gradcheck(features.__matmul__, (weight,))
    torch.autograd.gradgradcheck(features.__matmul__, (weight,))


def test_features_without_entries_or_nodes_work():
    weight = torch.randn(4, 3, requires_grad=True)
    for nodes in (0, 2):
        product = M.SparseFeatures(torch.zeros(nodes, 4)) @ weight
        assert torch.equal(product, torch.zeros(nodes, 3))
        product.sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()


def test_members_share_one_product():
    x = bag_of_words()
    features = M.SparseFeatures(x)
    weight = torch.randn(2, 3, 5, 4)
    torch.testing.assert_close(features @ weight, x @ weight)
    scale = torch.rand(3, features.num_entries)
    scaled = features.with_values(features.values * scale)
    for w in (weight[0, 0], weight[0], weight):
        torch.testing.assert_close(scaled @ w, scaled.to_dense() @ w)


def test_transforms_see_through_the_product():
    x = bag_of_words()
    features, weight = M.SparseFeatures(x), torch.randn(3, 5, 4)
    torch.testing.assert_close(torch.vmap(features.__matmul__)(weight), x @ weight)
    squares = torch.func.vmap(torch.func.grad(lambda w: (features @ w).square().sum()))(weight)
    torch.testing.assert_close(squares, 2 * x.t() @ (x @ weight))
    pushed = torch.func.jvp(features.__matmul__, (weight[0],), (weight[1],))[1]
    torch.testing.assert_close(pushed, x @ weight[1])
    scale = torch.rand(3, features.num_entries)
    mapped = torch.vmap(lambda s: feature_product(features.values * s, weight[0], features._places))
    expected = features.with_values(features.values * scale) @ weight[0]
    torch.testing.assert_close(mapped(scale), expected)


def test_compiled_code_has_an_operator():
    features = M.SparseFeatures(bag_of_words())
    weight = torch.randn(5, 4, requires_grad=True)
    torch.library.opcheck(_product, (features.values, None, weight, *features._places))


def test_row_normalisation_leaves_empty_rows_empty():
    normalised = M.SparseFeatures(bag_of_words(20)).row_normalize()
    sums = normalised.to_dense().sum(1)
    assert torch.isin(sums.round(decimals=12), torch.tensor([0.0, 1.0])).all()
    assert sums[-1] == 0


def test_rows_can_be_taken():
    x, nodes = bag_of_words(), torch.tensor([4, 0, 5, 0])
    assert torch.equal(M.SparseFeatures(x).take(nodes).to_dense(), x[nodes])
    taken = M.SparseFeatures(x).take(x[:, 0] > 0)
    assert torch.equal(taken.to_dense(), x[x[:, 0] > 0])
    weight = torch.randn(5, 2)
    torch.testing.assert_close(taken @ weight, x[x[:, 0] > 0] @ weight)


def test_dropout_falls_on_the_non_zeros_only():
    features = M.SparseFeatures(torch.ones(200, 50).tril())
    dropout = FeatureDropout(0.6)
    dropped = dropout(features)
    assert torch.equal(dropped.to_dense().triu(1), torch.zeros(200, 50))
    kept = dropped.values != 0
    torch.testing.assert_close(dropped.values[kept], torch.full((int(kept.sum()),), 2.5))
    assert abs(kept.double().mean() - 0.4) < 0.02
    assert dropout.eval()(features) is features


def test_a_trained_layer_is_the_dense_one_on_the_dropped_features():
    encoder = M.GraphConvEncoder(5, 4)
    graph, features = random_graph().normalize("sym"), M.SparseFeatures(bag_of_words())
    with gd.stochastic(1, 2):
        dropped = encoder.dropout(features).to_dense()
        out = encoder(features, graph)
    torch.testing.assert_close(out, encoder.eval()(dropped, graph))


def test_each_member_has_its_own_mask():
    encoder = M.GraphConvEncoder(5, 4)
    graph, features = random_graph().normalize("sym"), M.SparseFeatures(bag_of_words())
    seeds = torch.tensor([3, 4])
    with gd.stochastic(seeds, 1):
        together = encoder(features, graph)
    assert together.shape == (2, 6, 4)
    for seed, member in zip(seeds.tolist(), together, strict=True):
        with gd.stochastic(seed, 1):
            torch.testing.assert_close(encoder(features, graph), member)


def test_errors_name_the_remedy(without_type_checks: None):
    features = M.SparseFeatures(torch.eye(4))
    with pytest.raises(ValueError, match=r"\[nodes, features\], but have shape \[2, 3, 4\]"):
        M.SparseFeatures(torch.ones(2, 3, 4))
    with pytest.raises(TypeError, match=r"real constants, .* requires_grad=True. Detach"):
        M.SparseFeatures(torch.ones(2, 3, requires_grad=True))
    with pytest.raises(ValueError, match=r"node 1 has nan as feature 2; 1 are not finite. Repair"):
        M.SparseFeatures(np.array([[0, 0, 1.0], [0, 0, np.nan]]))
    with pytest.raises(ValueError, match=r"\[..., 4, channels\], .* \[5, 2\]. Build the layer"):
        features @ torch.ones(5, 2)
    with pytest.raises(AttributeError, match=r"frozen: `shape` cannot be set. Use `x.with_val"):
        features.shape = (3, 3)
    with pytest.raises(ValueError, match=r"GraphConvEncoder takes 5 channels .* 4 came .*in_chan"):
        M.GraphConvEncoder(5, 2)(features, random_graph(4))
    with pytest.raises(TypeError, match=r"layout torch.sparse_coo came. Convert it once"):
        M.GraphConvEncoder(4, 2)(torch.eye(4).to_sparse(), random_graph(4))
    with pytest.raises(TypeError, match=r"a csr_array came. Convert it once: `x = graphode.Spar"):
        M.LinearEncoder(4, 2)(scipy.sparse.csr_array(np.eye(4)))


def test_moving_to_another_dtype_keeps_the_matrix():
    features = M.SparseFeatures(bag_of_words())
    for there in (features.to(dtype=torch.float32), features.to(torch.float32)):
        moved: Tensor = there.to_dense()
        assert moved.dtype == torch.float32
        assert torch.equal(moved.double(), features.to_dense())
    assert "6 × 5" in repr(features)


def test_other_values_must_be_one_for_each_entry(without_type_checks: None):
    features = M.SparseFeatures(torch.eye(4, 6))
    for wrong in (torch.ones(2), torch.ones(3, 5), torch.tensor(1.0)):
        with pytest.raises(
            ValueError, match=r"shape \[..., 4\], one for each entry .* order of `x"
        ):
            features.with_values(wrong)
    with pytest.raises(ValueError, match=r"device, cpu, but are on meta. Move the features once"):
        features.with_values(torch.ones(4, device="meta"))
    with pytest.raises(TypeError, match=r"real floating dtype, but torch.int64 was given. Choose"):
        features.with_values(torch.ones(4).long())


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.cfloat])
def test_a_dtype_that_features_cannot_have_is_refused(dtype: torch.dtype):
    with pytest.raises(TypeError, match=rf"real floating dtype, but {dtype} was given. Choose"):
        M.SparseFeatures(torch.eye(3) / 2).to(dtype)


def test_rows_that_are_not_there_cannot_be_taken(without_type_checks: None):
    features = M.SparseFeatures(torch.eye(4))
    assert features.take([]).shape == (0, 4)
    for wrong in ([0.5, 1.7], torch.tensor([True, False]), torch.ones(5, dtype=torch.bool), [[0]]):
        with pytest.raises(ValueError, match=r"a boolean mask of shape \[4\], but has shape"):
            features.take(wrong)
    for wrong in ([0, 4], [-1]):
        with pytest.raises(ValueError, match=r"numbers from 0 to 3, but they run from"):
            features.take(wrong)
