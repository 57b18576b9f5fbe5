"""Dropout by the GPU's kernel drops what plain operations drop: for any key, shape and transform.

Where there is no GPU, Triton's interpreter runs it, if Triton is installed and TRITON_INTERPRET=1
is set.
"""

import importlib.util
import os

import pytest
import torch
from torch import Tensor

import graphode as gd
from graphode.flows import kernels
from graphode.flows.masks import mix
from graphode.flows.stochastic import SolveNoise, noise_of

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None
        or (DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1"),
        reason="no Triton here, or no GPU",
    ),
    pytest.mark.usefixtures("without_type_checks"),
]


@pytest.fixture(autouse=True)
def float32():
    """What the kernel serves."""
    torch.set_default_dtype(torch.float32)


def assert_same(run, monkeypatch) -> None:
    """`run` returns the same tensors without the kernels and with them, to the bit."""
    found = []
    for devices in (set(), {DEVICE}):
        monkeypatch.setattr(kernels, "DEVICES", devices)
        found.append(run())
    for plain, fused in zip(*found, strict=True):
        assert plain.shape == fused.shape
        assert torch.equal(plain, fused)


def numbers(*shape: int) -> Tensor:
    """Whole numbers of the device, large ones and negative ones among them."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, device=DEVICE) * 2**41 - 2**40 - 3).reshape(shape)


@pytest.mark.parametrize(
    "parts",
    [
        [7, 2**63 + 1, (5,)],
        [(5,), 3],
        [(5,), ()],
        [(), ()],
        [3, ()],
        [(2, 1), -4, (2, 3)],
        [(2,), (2, 3)],
        [(2, 3), (2,)],
        [(1,), (4,)],
        [(), (4,), (4,), 2],
        [(130,), (130, 2)],
    ],
    ids=str,
)
def test_numbers_are_mixed_to_the_same_bits(parts, monkeypatch):
    parts = [part if isinstance(part, int) else numbers(*part) for part in parts]
    assert_same(lambda: [mix(parts)], monkeypatch)


CASES = {
    "one": ((40, 64), 3, None),
    "small system": ((6, 5, 3), 3, None),
    "batch": ((3, 50, 33), 3, None),
    "step on the device": ((40, 64), 3, None),
    "members": ((2, 40, 33), (2,), None),
    "members of batches": ((2, 3, 4, 5), (2,), None),
    "what members share": ((4, 5), (2,), None),
    "samples": ((3, 4, 5), 3, (3,)),
    "members and samples": ((2, 3, 4, 5), (2,), (3,)),
    "empty": ((0, 5), 3, None),
}


@pytest.mark.parametrize("case", CASES)
def test_states_and_gradients_of_two_orders_are_the_same(case, monkeypatch):
    shape, seed, sample = CASES[case]
    h = torch.randn(shape, device=DEVICE, requires_grad=True)
    dropout = gd.Dropout(0.4)
    seed = seed if isinstance(seed, int) else numbers(*seed)
    step = torch.tensor(4, device=DEVICE) if case == "step on the device" else 4

    def run():
        with gd.stochastic(seed, step, None if sample is None else numbers(*sample)):
            out = dropout(h)
        (first,) = torch.autograd.grad(out.square().sum(), h, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), h)
        return [out, first, second]

    assert_same(run, monkeypatch)


@pytest.mark.parametrize("shape", [(3, 40, 33), (3, 2, 4, 5)])
@pytest.mark.parametrize("own_state", [True, False])
@pytest.mark.parametrize("own_key", [True, False])
def test_mapped_states_and_keys_are_dropped_alike(shape, own_state, own_key, monkeypatch):
    h = torch.randn(shape if own_state else shape[1:], device=DEVICE, requires_grad=True)
    weight = torch.randn(3, device=DEVICE)
    seeds, dropout = numbers(3), gd.Dropout(0.4)

    def one(h: Tensor, seed: Tensor, weight: Tensor) -> Tensor:
        with gd.stochastic(seed if own_key else 5, 1):
            return dropout(h) * weight

    def run():
        out = torch.func.vmap(one, (0 if own_state else None, 0, 0))(h, seeds, weight)
        return [out, *torch.autograd.grad(out.square().sum(), h)]

    assert_same(run, monkeypatch)


def test_states_in_any_layout_are_the_same(monkeypatch):
    wide = torch.randn(5, 70, device=DEVICE)
    dropout = gd.Dropout(0.4)

    def run():
        with gd.stochastic(3, 1):
            return [dropout(wide.T), dropout(wide[:, 1:]), dropout(wide[1].expand(8, 70))]

    assert_same(run, monkeypatch)


def test_edges_and_their_gradients_are_the_same(monkeypatch):
    dense = torch.rand(9, 9, device=DEVICE, requires_grad=True)
    graph = gd.Graph.from_dense(dense.detach())
    dropout = gd.EdgeDropout(0.3)

    def run():
        weight = graph.edge_weight.clone().requires_grad_()
        with gd.stochastic(3, 1), noise_of(SolveNoise()):
            out = dropout(graph.reweight(weight)).edge_weight
        return [out, *torch.autograd.grad(out.square().sum(), weight)]

    assert_same(run, monkeypatch)


def test_a_form_that_was_launched_is_not_searched_for_again(monkeypatch):
    from graphode.flows import launch

    class Compiled:
        function, packed_metadata = "function", "metadata"

        def run(self, *args) -> None:
            runs.append(args)

    class Kernel:
        __name__ = "kernel of a test"

        def __getitem__(self, grid):
            return lambda *args: searches.append(args) or Compiled()

    runs, searches = [], []
    monkeypatch.setattr(launch, "CompiledKernel", Compiled)
    if DEVICE == "cpu":
        monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)
        monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 5, raising=False)
    x = torch.zeros(8, device=DEVICE)
    for number in (1, 2):
        launch.launch(Kernel(), ("form",), (4, 1, 1), (x,), number)
    launch.launch(Kernel(), ("form",), (4, 1, 1), (x[1:],), 3)  # at another alignment
    launch.launch(Kernel(), ("another",), (4, 1, 1), (x,), 4)
    assert [args[-1] for args in searches] == [1, 3, 4]
    ((*grid, _, function, metadata, _, _, _, place, number),) = runs
    assert (grid, function, metadata) == ([4, 1, 1], "function", "metadata")
    assert (place, number) == (x.data_ptr(), 2)
