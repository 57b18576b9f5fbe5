"""Programs call by the shortest way, and tanh is NumPy's, as good as PyTorch's but for a bit."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from graphode.experiments.direct_calls import call_directly, tanh


def test_calls_are_as_many_and_say_the_same():
    def function(x):
        return (x.view(6) + 1).exp().view(3, 2).sum(0)

    program = make_fx(function)(torch.zeros(2, 3))
    count = len(program.graph.nodes)
    program, x = call_directly(program), torch.randn(2, 3)
    assert len(program.graph.nodes) == count
    assert torch.add in {node.target for node in program.graph.nodes}
    assert torch.equal(program(x), function(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 10.0, 1e3])
def test_tanh_is_within_two_units_in_the_last_place(dtype, scale):
    x = scale * torch.randn(20_000, dtype=dtype)
    expected = torch.tanh(x.double()).to(dtype)
    unit = (torch.nextafter(expected, torch.full_like(x, 2.0)) - expected).abs()
    assert ((tanh(x) - expected).abs() <= 2 * unit).all()


def test_tanh_of_what_is_no_number():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    found = tanh(x)
    assert found[0].isnan()
    assert found[1:].tolist() == [1.0, -1.0, 0.0]
    assert found[3].signbit()


@pytest.mark.parametrize(
    "x",
    [torch.randn(()), torch.randn(0, 3), torch.randn(3, 4).mT, torch.randn(3)],
    ids=["one number", "none", "transposed", "vector"],
)
def test_tanh_of_any_layout(x):
    torch.testing.assert_close(tanh(x), torch.tanh(x), rtol=1e-6, atol=0)
    torch.testing.assert_close(tanh(x.requires_grad_()), torch.tanh(x.detach()), rtol=1e-6, atol=0)


def test_tanh_writes_where_it_is_told():
    x = torch.randn(5)
    expected = tanh(x)
    assert tanh(x, out=x) is x
    assert torch.equal(x, expected)


def test_other_types_have_pytorchs_tanh():
    x = torch.randn(5).bfloat16()
    program = call_directly(make_fx(torch.tanh)(x))
    assert torch.equal(program(x), torch.tanh(x))
