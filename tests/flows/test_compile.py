"""A fixed-step flow compiles without graph breaks, and can be captured as a CUDA graph."""

import shutil
from pathlib import Path

import pytest
import torch

import graphode as gd
from tests.compiled import run_compiled
from tests.flows.compiled_flows import Field

FILE = Path(__file__).parent / "compiled_flows.py"
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_compiled_flows_equal_eager_ones():
    run_compiled(FILE, "not slow")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_flow_compiled_to_machine_code_equals_the_eager_one():
    run_compiled(FILE, "slow")


def test_capture_needs_num_steps():
    with pytest.raises(ValueError, match=r"`capture=True`.*needs `num_steps`"):
        gd.Flow(Field(), solver="dopri5", capture=True)


def test_capture_without_cuda_is_an_ordinary_solve():
    field = Field()
    h, graph = torch.randn(4, 3), torch.randn(4, 4)
    captured = gd.Flow(field, solver="rk4", num_steps=3, capture=True)
    plain = gd.Flow(field, solver="rk4", num_steps=3)
    assert torch.equal(captured(h, graph), plain(h, graph))


@CUDA
@pytest.mark.parametrize("solver", ["euler", "rk4_38", "dopri5"])
def test_captured_flow_equals_the_eager_one(solver: str):
    field = Field().cuda()
    captured = gd.Flow(field, solver=solver, num_steps=3, capture=True)
    plain = gd.Flow(field, solver=solver, num_steps=3)
    graph = torch.randn(4, 4, device="cuda")
    for _ in range(3):  # recorded once, then replayed on new values
        h = torch.randn(4, 3, device="cuda", requires_grad=True)
        weights = torch.randn(4, 3, device="cuda")
        results = []
        for flow in (captured, plain):
            final = flow(h, graph)
            gradients = torch.autograd.grad((weights * final).sum(), [h, *field.parameters()])
            results.append([final.clone(), *(g.clone() for g in gradients)])
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@CUDA
def test_captured_flow_follows_its_parameters():
    field = Field().cuda()
    captured = gd.Flow(field, solver="rk4", num_steps=2, capture=True)
    plain = gd.Flow(field, solver="rk4", num_steps=2)
    h, graph = torch.randn(4, 3, device="cuda"), torch.randn(4, 4, device="cuda")
    with torch.no_grad():
        captured(h, graph)
        for parameter in field.parameters():
            parameter.mul_(0.5)
        torch.testing.assert_close(captured(h, graph), plain(h, graph))
