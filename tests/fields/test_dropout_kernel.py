"""Dropout by the kernel drops what plain operations drop: for any key, shape and transform."""

import pytest
import torch
from torch import Tensor, nn

import graphode as gd
from graphode.flows import evaluation, kernels, masks, runge_kutta
from graphode.flows.masks import mix
from graphode.flows.stochastic import SolveNoise, noise_of
from tests.kernels import DEVICE, needs_triton

pytestmark = [needs_triton, pytest.mark.usefixtures("without_type_checks")]


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
        [(2, 1, 1), (2, 3)],
        [(2, 3), (2, 1, 1), 5],
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
    "one state of all members": ((1, 4, 5), (2,), None),
    "samples": ((3, 4, 5), 3, (3,)),
    "members and samples": ((2, 3, 4, 5), (2,), (3,)),
    "samples that members share": ((3, 4, 5), (2,), (3,)),
    "what members and samples share": ((4, 5), (2,), (3,)),
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


@pytest.mark.parametrize("shape", [(4, 5), (2, 4, 5)])
@pytest.mark.parametrize("own_state", [True, False])
@pytest.mark.parametrize("own_key", [True, False])
def test_mapped_samples_have_masks_of_their_own(shape, own_state, own_key, monkeypatch):
    h = torch.randn(*(3,) * own_state, *shape, device=DEVICE, requires_grad=True)
    weight = torch.randn(3, device=DEVICE)
    seeds, dropout = numbers(3), gd.Dropout(0.4)

    def one(h: Tensor, seed: Tensor, weight: Tensor) -> Tensor:
        with gd.stochastic(seed if own_key else 5, 1, sample=numbers(2)):
            return dropout(h) * weight

    def run():
        out = torch.func.vmap(one, (0 if own_state else None, 0, 0))(h, seeds, weight)
        assert out.shape == (3, 2, 4, 5)
        return [out, *torch.autograd.grad(out.square().sum(), h)]

    assert_same(run, monkeypatch)


@pytest.mark.parametrize(
    ("members", "steps"),
    [(None, (2,)), (None, (2, 3)), ((2,), (2,)), ((2,), (2, 1)), ((2,), (2, 3)), ((2, 1), (2, 3))],
    ids=str,
)
def test_steps_of_their_own_line_up_with_members_and_samples(members, steps, monkeypatch):
    h = torch.randn(2, 3, 4, 5, device=DEVICE, requires_grad=True)
    dropout = gd.Dropout(0.4, redraw="per_step")

    def run():
        with gd.stochastic(5 if members is None else numbers(*members), 1):
            noise = SolveNoise()
        noise.begin_step(numbers(*steps), 0)
        with noise_of(noise):
            out = dropout(h)
        return [out, *torch.autograd.grad(out.square().sum(), h)]

    assert_same(run, monkeypatch)


class RedrawnField(nn.Module):
    """3 tanh(dropout(h) W), with masks of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = gd.Dropout(0.4, redraw="per_step")
        self.register_buffer("weight", torch.randn(3, 3))

    def forward(self, t: Tensor, h: Tensor, graph: object) -> Tensor:
        return 3 * torch.tanh(self.dropout(h) @ self.weight)


@pytest.mark.parametrize("samples", [2, 3])
def test_an_adaptive_flow_redraws_the_masks_of_members_and_samples_alike(samples, monkeypatch):
    h = torch.randn(2, samples, 6, 3, device=DEVICE)
    t1 = torch.linspace(0.3, 1, 2 * samples, device=DEVICE).reshape(2, samples)
    flow = gd.Flow(RedrawnField().to(DEVICE), solver="dopri5", rtol=1e-2, atol=1e-2)
    for module in (evaluation, runge_kutta):  # whose own kernel rounds otherwise
        monkeypatch.setattr(module, "may_combine", lambda *_: False)

    def run():
        with gd.stochastic(numbers(2), 1):
            return [flow(h, t1=t1)]

    assert_same(run, monkeypatch)


def test_more_keys_than_a_grid_has_rows_are_dropped_alike(monkeypatch):
    """Of a grid's dimensions CUDA limits all but the first to 65 535; the interpreter is slow."""
    from graphode.flows import mask_kernel

    keys = 70_000 if DEVICE == "cuda" else 7
    h, dropout, grids = torch.randn(keys, 40, 33, device=DEVICE), gd.Dropout(0.4), []
    launch = mask_kernel.launch

    def recorded(kernel, form, grid, *args):
        grids.append(grid)
        launch(kernel, form, grid, *args)

    def run():
        with gd.stochastic(numbers(keys), 1):
            return [dropout(h)]

    monkeypatch.setattr(mask_kernel, "launch", recorded)
    assert_same(run, monkeypatch)
    assert grids[-1] == (2 * keys, 1, 1)


def test_gradients_follow_a_first_call_in_inference_mode(monkeypatch):
    monkeypatch.setattr(masks, "_positions", {})
    monkeypatch.setattr(kernels, "DEVICES", {DEVICE})
    dropout = gd.Dropout(0.4)
    for shape in ((3, 4, 5), (6, 5)):
        h = torch.ones(shape, device=DEVICE, requires_grad=True)
        with gd.stochastic(3, 1):
            with torch.inference_mode():
                mask = dropout(h)
            (gradient,) = torch.autograd.grad(dropout(h).sum(), h)
        assert torch.equal(gradient, mask)


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


@pytest.mark.parametrize("own_weight", [True, False])
@pytest.mark.parametrize("own_key", [True, False])
def test_mapped_edges_are_dropped_alike(own_weight, own_key, monkeypatch):
    graph, dropout = gd.Graph.from_dense(torch.rand(9, 9, device=DEVICE)), gd.EdgeDropout(0.3)
    shape = (3,) * own_weight + (graph.num_edges,)
    weight = torch.randn(shape, device=DEVICE, requires_grad=True)

    def one(weight: Tensor, seed: Tensor, factor: Tensor) -> gd.Graph:
        with gd.stochastic(seed if own_key else 5, 1):
            return dropout(graph.reweight(weight * factor))

    def run():
        mapped = torch.func.vmap(one, (0 if own_weight else None, 0, 0))
        out = mapped(weight, numbers(3), torch.ones(3, device=DEVICE))
        mask, weights = out._keep_mask, out.edge_weight
        return [weights, mask, *torch.autograd.grad(weights.square().sum(), weight)]

    assert_same(run, monkeypatch)
