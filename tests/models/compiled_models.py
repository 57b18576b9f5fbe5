"""Models under torch.compile; `test_compile.py` runs this in a process without type checks."""

import pytest
import torch
from torch import Tensor, nn

import graphode as gd
from tests.models.registry import IN, MODELS, random_graph

pytestmark = [
    pytest.mark.usefixtures("fresh_compiler"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch, by torch
]
# Adaptive solvers decide by values, which a tracer does not have.
FIXED_STEPS = ["GCDE", "diffusion", "GADE", "GADE-gatv2", "GMDE", "GCN", "GCN-star", "GAT", "MLP"]


def outcome(model: nn.Module, parameters: list[Tensor], x: Tensor, graph: gd.Graph) -> list[Tensor]:
    """The prediction, and the gradients of one scalar of it."""
    x = x.clone().requires_grad_()
    y = model(x, graph)
    return [y, *torch.autograd.grad(y.sin().sum(), [x, *parameters])]


def assert_compiles(model: nn.Module, backend: str, x: Tensor, graph: gd.Graph) -> None:
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    parameters = list(model.parameters())
    expected = outcome(model, parameters, x, graph)
    found = outcome(compiled, parameters, x, graph)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", FIXED_STEPS)
def test_a_compiled_model_is_the_eager_one(name: str):
    graph = random_graph().normalize("sym")
    assert_compiles(MODELS[name]().eval(), "aot_eager", torch.randn(6, IN), graph)


def test_compiled_attention_counts_loops_once_and_keeps_samples_apart():
    graph = gd.Graph.from_dense(random_graph().to_dense() + torch.eye(6))
    assert_compiles(MODELS["GAT"]().eval(), "aot_eager", torch.randn(2, 6, IN), graph)


@pytest.mark.slow
def test_attention_compiled_to_machine_code_is_the_eager_one():
    graph = random_graph().normalize("sym")
    assert_compiles(MODELS["GAT"]().eval(), "inductor", torch.randn(2, 6, IN), graph)
