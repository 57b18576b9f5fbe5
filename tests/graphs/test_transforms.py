"""`torch.func` and forward mode see the sparse product as they see the dense one."""

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from graphode.graphs import Graph, product, transforms

NODES = 5


@pytest.fixture(params=["directed", "symmetric"])
def graph(request: pytest.FixtureRequest) -> Graph:
    matrix = torch.rand(NODES, NODES) * (torch.rand(NODES, NODES) < 0.6)
    return Graph.from_dense(matrix if request.param == "directed" else matrix + matrix.t())


def sparse(graph: Graph, h: Tensor, weight: Tensor) -> Tensor:
    return torch.tanh(graph.reweight(weight).propagate(torch.sin(h)))


def dense(graph: Graph, h: Tensor, weight: Tensor) -> Tensor:
    source, target = graph.edge_index
    matrix = torch.zeros(NODES, NODES).index_put((target, source), weight)
    return torch.tanh(matrix @ torch.sin(h))


@pytest.mark.parametrize("transform", [jacrev, jacfwd])
def test_jacobians_equal_those_of_the_dense_product(graph: Graph, transform):
    h = torch.randn(NODES, 2)
    results = [
        transform(lambda h, w, f=f: f(graph, h, w), argnums=(0, 1))(h, graph.edge_weight)
        for f in (sparse, dense)
    ]
    torch.testing.assert_close(*results)
    constant = jacrev(lambda h: torch.tanh(graph.propagate(torch.sin(h))))(h)
    torch.testing.assert_close(constant, results[1][0])


def test_second_derivatives_equal_those_of_the_dense_product(graph: Graph):
    h = torch.randn(NODES, 2)
    results = [
        hessian(lambda h, w, f=f: f(graph, h, w).square().sum(), argnums=(0, 1))(
            h, graph.edge_weight
        )
        for f in (sparse, dense)
    ]
    torch.testing.assert_close(*results)


@pytest.mark.parametrize(
    "build",
    [
        lambda graph, weight: Graph(graph.edge_index, NODES, weight),
        lambda graph, weight: graph.reweight(weight),
        lambda graph, weight: graph.reweight(weight).normalize("sym"),
    ],
    ids=["built", "reweighted", "normalised"],
)
def test_weights_may_lose_their_symmetry_along_a_tangent(graph: Graph, build):
    h, cotangent, tangent = torch.randn(NODES, 2), torch.randn(NODES, 2), torch.randn(NODES, 2)
    weight, direction = graph.edge_weight, torch.randn_like(graph.edge_weight)

    def pulled(weight: Tensor, h: Tensor) -> Tensor:
        return vjp(build(graph, weight).propagate, h)[1](cotangent)[0]

    step = 1e-6 * direction
    difference = (pulled(weight + step, h) - pulled(weight - step, h)) / 2e-6
    _, forward = jvp(pulled, (weight, h), (direction, tangent))
    torch.testing.assert_close(forward, difference, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("joins", [True, False], ids=["as columns", "as they are"])
@pytest.mark.parametrize("in_dims", [(0, 0), (None, 0), (0, None)])
def test_samples_of_every_member_are_mapped(graph: Graph, in_dims, joins, monkeypatch):
    for module in (product, transforms):
        monkeypatch.setattr(module, "joins_columns", lambda values, h: joins)
    h = torch.randn(4, NODES, 2) if in_dims[0] is None else torch.randn(3, 4, NODES, 2)
    weight = graph.edge_weight if in_dims[1] is None else torch.rand(3, graph.num_edges)
    inputs = [h.requires_grad_(), weight.clone().requires_grad_()]
    found = []
    for function in (sparse, dense):
        y = vmap(lambda h, w, f=function: f(graph, h, w), in_dims=in_dims)(*inputs)
        found.append([y, *torch.autograd.grad(y.square().sum(), inputs)])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("joins", [True, False], ids=["as columns", "as they are"])
@pytest.mark.parametrize("in_dims", [(0, 0), (None, 0), (0, None)])
def test_gradients_of_samples_are_mapped(graph: Graph, in_dims, joins, monkeypatch):
    for module in (product, transforms):
        monkeypatch.setattr(module, "joins_columns", lambda values, h: joins)
    h = torch.randn(4, NODES, 2) if in_dims[0] is None else torch.randn(3, 4, NODES, 2)
    weight = graph.edge_weight if in_dims[1] is None else torch.rand(3, graph.num_edges)
    once = [
        grad(lambda h, w, f=f: f(graph, h, w).square().sum(), argnums=(0, 1))
        for f in (sparse, dense)
    ]
    torch.testing.assert_close(*[vmap(each, in_dims=in_dims)(h, weight) for each in once])
    twice = [
        grad(lambda h, w, d=d: sum(part.square().sum() for part in d(h, w)), argnums=(0, 1))
        for d in once
    ]
    torch.testing.assert_close(*[vmap(each, in_dims=in_dims)(h, weight) for each in twice])


@pytest.mark.parametrize("in_dims", [(0, None), (None, 0), (0, 0), (1, 0)])
def test_vmap_equals_a_loop(graph: Graph, in_dims: tuple[int | None, int | None]):
    h = torch.randn(NODES, 2) if in_dims[0] is None else torch.randn(3, NODES, 2)
    h = h.movedim(0, in_dims[0]) if in_dims[0] else h
    weight = graph.edge_weight
    weight = torch.rand(3, len(weight)) if in_dims[1] == 0 else weight
    for derive in (
        lambda f: f,
        lambda f: grad(lambda h, w: f(h, w).square().sum(), argnums=(0, 1)),
    ):
        results = [
            vmap(derive(lambda h, w, f=f: f(graph, h, w)), in_dims=in_dims)(h, weight)
            for f in (sparse, dense)
        ]
        torch.testing.assert_close(*results)


def test_forward_mode_equals_finite_differences(graph: Graph):
    h, tangent = torch.randn(3, NODES, 2), torch.randn(3, NODES, 2)
    _, derivative = jvp(graph.propagate, (h,), (tangent,))
    torch.testing.assert_close(derivative, graph.propagate(tangent))
    with forward_ad.dual_level():
        dual = graph.propagate(forward_ad.make_dual(h, tangent))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, graph.propagate(tangent))
    torch.autograd.gradcheck(graph.propagate, (h.requires_grad_(),), check_forward_ad=True)


def test_gradients_of_many_cotangents_are_found_at_once(graph: Graph):
    h = torch.randn(NODES, 2, requires_grad=True)
    weight = graph.edge_weight.clone().requires_grad_()
    product = sparse(graph, h, weight)
    cotangents = torch.randn(3, NODES, 2)
    together = torch.autograd.grad(
        product, (h, weight), cotangents, is_grads_batched=True, retain_graph=True
    )
    for k, cotangent in enumerate(cotangents):
        alone = torch.autograd.grad(product, (h, weight), cotangent, retain_graph=True)
        torch.testing.assert_close(tuple(gradient[k] for gradient in together), alone)
