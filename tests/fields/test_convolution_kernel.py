"""A graph convolution in one pass is the formula: values, gradients, masks, for any graph."""

import pytest
import torch
from torch import Tensor

import graphode as gd
from graphode.fields import fused_convolution
from graphode.fields.activation import find_activation
from graphode.fields.fused_convolution import convolve, mix, spread
from graphode.flows import kernels
from graphode.graphs import kernels as graph_kernels
from graphode.graphs.tiles import LANES
from tests.kernels import DEVICE, needs_triton

NODES = 70
pytestmark = pytest.mark.usefixtures("without_type_checks")


@pytest.fixture
def fused(monkeypatch):
    """Kernels for float32, of small graphs and few channels too; how often the one kernel ran."""
    torch.set_default_dtype(torch.float32)
    monkeypatch.setattr(fused_convolution, "FEW_NODES", 0)
    monkeypatch.setattr(fused_convolution, "_NARROWEST_IN_ONE", 1)
    monkeypatch.setattr(kernels, "DEVICES", {DEVICE})
    monkeypatch.setattr(graph_kernels, "TRITON_DEVICES", {DEVICE})
    from graphode.fields import convolution_kernel, mixing_kernel

    if DEVICE == "cpu":  # the interpreter knows float32 products of one kind only
        monkeypatch.setattr(mixing_kernel, "PRECISIONS", {"highest": "ieee"})
    calls = []
    for name in ("convolve", "convolve_back"):
        monkeypatch.setattr(convolution_kernel, name, counted(calls, convolution_kernel, name))
    return calls


def counted(calls, module, name):
    function = getattr(module, name)

    def call(*args, **kwargs):
        calls.append(name)
        return function(*args, **kwargs)

    return call


def directed() -> gd.Graph:
    """Few edges, some loops, a node that all send to, one that sends to all, and a lone one."""
    matrix = torch.rand(NODES, NODES) * (torch.rand(NODES, NODES) < 0.03)
    matrix[3], matrix[:, 7] = torch.rand(NODES), torch.rand(NODES)
    matrix[11], matrix[:, 11] = 0, 0
    return gd.Graph.from_dense(matrix / 5).to(DEVICE)


def undirected() -> gd.Graph:
    matrix = (torch.rand(NODES, NODES) < 0.03).float()
    return gd.Graph.from_dense(torch.maximum(matrix, matrix.T)).normalize("sym").to(DEVICE)


def without_edges() -> gd.Graph:
    return gd.Graph(torch.zeros(2, 0, dtype=torch.int64), NODES).to(DEVICE)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device=DEVICE, requires_grad=True)


def in_two(h, weight, bias, graph, activation=None, dropout=None):
    """The two halves, each by its own kernel."""
    return spread(mix(h, weight, dropout), bias, graph, find_activation(activation))


def assert_near(found, expected, tolerance=1e-5):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        assert (a - b).norm() <= tolerance * b.norm() + 1e-6


@needs_triton
@pytest.mark.parametrize("graph", [directed, undirected, without_edges])
@pytest.mark.parametrize("activation", [None, "relu", "softplus", "tanh"])
@pytest.mark.parametrize("widths", [(16, 16), (5, 7), (3, 33)])
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no bias"])
def test_values_and_gradients_are_those_of_the_dense_formula(
    graph, activation, widths, has_bias, fused
):
    graph = graph()
    h, weight = random(NODES, widths[0]), random(*widths)
    inputs = [h, weight, *([random(widths[1])] if has_bias else [])]
    direction = torch.randn(NODES, widths[1], device=DEVICE)
    y = convolve(h, weight, inputs[2] if has_bias else None, graph, find_activation(activation))
    found = [y, *torch.autograd.grad(y, inputs, direction)]
    assert fused == ["convolve", "convolve_back"]

    exact = [x.detach().double().requires_grad_() for x in inputs]
    u = graph.to_dense().double() @ exact[0] @ exact[1]
    z = find_activation(activation)(u + exact[2] if has_bias else u)
    assert_near(found, [z, *torch.autograd.grad(z, exact, direction.double())])


@needs_triton
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_what_is_dropped_is_the_same_as_in_two_kernels(shape, fused):
    h, weight, bias, graph = random(*shape, NODES, 6), random(6, 8), random(8), directed()
    dropout = gd.Dropout(0.4)
    found = []
    for function in (convolve, in_two):
        with gd.stochastic(3, 1):
            y = function(h, weight, bias, graph, find_activation("tanh"), dropout)
        found.append([y, *torch.autograd.grad(y.sin().sum(), [h, weight, bias])])
    assert fused == ["convolve", "convolve_back"]
    assert_near(*found)


@needs_triton
@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2)], ids=str)
def test_only_gradients_that_are_wanted_are_computed(wanted, fused):
    inputs = [random(NODES, 6), random(6, 8), random(8)]
    graph, found = directed(), []
    for wants in (wanted, (0, 1, 2)):
        for index, tensor in enumerate(inputs):
            tensor.requires_grad_(index in wants)
        y = convolve(*inputs, graph, find_activation("tanh"))
        gradients = torch.autograd.grad(y.sum(), [inputs[index] for index in wants])
        found.append(dict(zip(wants, gradients, strict=True)))
    assert fused.count("convolve_back") == (1 if wanted == (2,) else 2)
    for index in wanted:
        assert torch.equal(found[0][index], found[1][index])


def members(count: int) -> tuple[list[Tensor], Tensor]:
    inputs = [random(count, NODES, 6), random(count, 6, 8), random(count, 8)]
    return inputs, torch.arange(count, device=DEVICE) * 2**41 - 3


def of_members(inputs, seeds, graph, function=convolve, dims=(0, 0, 0)):
    dropout = gd.Dropout(0.4)

    def one(h, weight, bias, seed):
        with gd.stochastic(seed, 1):
            return function(h, weight, bias, graph, find_activation("softplus"), dropout)

    y = torch.func.vmap(one, (*dims, 0))(*inputs, seeds)
    return [y, *torch.autograd.grad(y.sin().sum(), inputs)]


@needs_triton
def test_a_member_has_the_same_bits_alone_and_among_others(fused, monkeypatch):
    """Alone its rows are shared out among more programs."""
    from graphode.fields import convolution_kernel

    inputs, seeds = members(3)
    graph = directed()
    count = graph._pattern.tiles[1].shape[1] // LANES
    assert 2 < count <= convolution_kernel.BACKWARD.tiles
    monkeypatch.setattr(convolution_kernel, "FORWARD_PROGRAMS", count)
    monkeypatch.setattr(convolution_kernel, "BACKWARD_PROGRAMS", 2)
    together = of_members(inputs, seeds, graph)
    again = of_members(inputs, seeds, graph)
    for index in range(3):
        own = [x.detach()[index : index + 1].requires_grad_() for x in inputs]
        alone = of_members(own, seeds[index : index + 1], graph)
        for a, b, c in zip(together, again, alone, strict=True):
            assert torch.equal(a, b)
            assert torch.equal(a[index], c[0])
    assert set(fused) == {"convolve", "convolve_back"}


@needs_triton
@pytest.mark.parametrize("dims", [(None, 0, 0), (0, None, 0), (0, 0, None), (None, None, None)])
def test_what_members_share_is_given_once(dims, fused):
    inputs, seeds = members(2)
    inputs = [
        x if dim == 0 else x.detach()[0].requires_grad_()
        for x, dim in zip(inputs, dims, strict=True)
    ]
    graph = directed()
    found = [of_members(inputs, seeds, graph, f, dims) for f in (convolve, in_two)]
    assert fused == ["convolve", "convolve_back"]
    assert_near(*found)


@needs_triton
@pytest.mark.parametrize("outer", [(0, None, None), (None, None, 0), (0, None, 0)], ids=str)
def test_members_are_mapped_again(outer, fused):
    """Over states in one pass; over biases that weights do not share, in two."""
    (h, weight, bias), _ = members(2)
    h = random(3, 2, NODES, 6) if outer[0] == 0 else h
    inner = (0, 0, 0) if outer[2] is None else (0, 0, None)
    bias = bias if outer[2] is None else random(3, 8)
    graph, found = directed(), []
    for function in (convolve, in_two):

        def one(h, weight, bias, function=function):
            return function(h, weight, bias, graph, find_activation("tanh"))

        y = torch.func.vmap(torch.func.vmap(one, inner), outer)(h, weight, bias)
        found.append([y, *torch.autograd.grad(y.sin().sum(), [h, weight, bias])])
    assert fused == ([] if outer[2] == 0 else ["convolve", "convolve_back"])
    assert_near(*found)


@needs_triton
@pytest.mark.parametrize("activation", ["softplus", "tanh", None])
def test_gradients_are_differentiated_and_batched(activation, fused):
    h, weight, bias, graph = random(NODES, 4), random(4, 4), random(4), directed()
    inputs, dropout = [h, weight, bias], gd.Dropout(0.4)
    directions = torch.randn(2, NODES, 4, device=DEVICE)
    found = []
    for function in (convolve, in_two):
        with gd.stochastic(3, 1):
            y = function(h, weight, bias, graph, find_activation(activation), dropout)
        first = torch.autograd.grad(y.sin().sum(), inputs, create_graph=True)
        total = sum(g.square().sum() for g in first)
        second = torch.autograd.grad(total, inputs, retain_graph=True)
        batched = torch.autograd.grad(y, inputs, directions, is_grads_batched=True)
        found.append([*first, *second, *batched])
    assert fused == ["convolve", "convolve_back"]
    assert_near(*found)


@needs_triton
@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("widths", [(6, 8), (6, 4)], ids=["one kernel", "two"])
def test_learned_weights_of_edges_keep_their_gradient_in_members(shape, widths, fused):
    graph = directed()
    h, weight, bias = random(2, *shape, NODES, widths[0]), random(2, *widths), random(2, widths[1])
    edges = torch.rand(2, graph.num_edges, device=DEVICE, requires_grad=True)
    inputs = [h, weight, bias, edges]

    def one(h, weight, bias, edges):
        return convolve(h, weight, bias, graph.reweight(edges), find_activation("tanh"))

    found = []
    for y in (
        torch.func.vmap(one)(*inputs),
        torch.stack([one(*own) for own in zip(*inputs, strict=True)]),
    ):
        found.append([y, *torch.autograd.grad(y.sin().sum(), inputs)])
    assert not fused
    assert_near(*found)


@needs_triton
@pytest.mark.parametrize("function", [convolve, in_two], ids=["one kernel", "two"])
def test_no_states_have_no_gradients(function, fused):
    inputs = [random(0, NODES, 6), random(6, 8), random(8)]
    y = function(*inputs, directed(), find_activation("tanh"))
    grads = torch.autograd.grad(y.sum(), inputs)
    assert y.shape == (0, NODES, 8)
    assert [grad.shape for grad in grads] == [x.shape for x in inputs]
    assert all((grad == 0).all() for grad in grads)


@needs_triton
@pytest.mark.parametrize("function", [convolve, in_two], ids=["one kernel", "two"])
def test_softplus_and_its_slope_are_exact_far_below_zero(function, fused):
    """Without edges there is nothing but the bias."""
    bias = torch.tensor([-40.0, -20.0, -10.0, -3.0, -0.5, 4.0], device=DEVICE, requires_grad=True)
    y = function(random(NODES, 6), random(6, 6), bias, without_edges(), find_activation("softplus"))
    (slope,) = torch.autograd.grad(y.sum(), bias)
    exact = bias.detach().double()
    torch.testing.assert_close(
        y[0].double(), torch.nn.functional.softplus(exact), rtol=1e-6, atol=0
    )
    torch.testing.assert_close(slope.double() / NODES, exact.sigmoid(), rtol=1e-5, atol=0)


@needs_triton
def test_gradients_follow_a_first_call_in_inference_mode(fused):
    h, weight, bias, graph = random(NODES, 6), random(6, 8), random(8), directed()
    with torch.inference_mode():
        y = convolve(h, weight, bias, graph)
    z = convolve(h, weight, bias, graph)
    z.sum().backward()
    assert torch.equal(y, z)
    assert fused == ["convolve", "convolve", "convolve_back"]


@needs_triton
@pytest.mark.parametrize("case", ["fewer channels", "narrow", "own weights", "small", "batch"])
def test_what_one_kernel_does_not_serve_takes_two(case, fused, monkeypatch):
    graph, widths = directed(), (6, 6)
    if case == "fewer channels":
        widths = (6, 4)
    elif case == "narrow":
        monkeypatch.setattr(fused_convolution, "_NARROWEST_IN_ONE", 7)
    elif case == "own weights":
        graph = graph.reweight(graph.edge_weight.clone().requires_grad_())
    elif case == "small":
        monkeypatch.setattr(fused_convolution, "FEW_NODES", NODES + 1)
    else:
        graph = gd.Graph.batch([graph, graph])
    h, weight, bias = random(graph.num_nodes, widths[0]), random(*widths), random(widths[1])
    y = convolve(h, weight, bias, graph)
    assert not fused
    assert_near([y], [graph.to_dense() @ (h @ weight) + bias])
