"""The GPU's kernels compute what the plain operations compute: values, gradients, masks."""

import pytest
import torch

import graphode as gd
from graphode.data import karate_club
from graphode.experiments.member_adam import MemberAdam
from graphode.experiments.traffic import TrafficForecast
from graphode.experiments.traffic_models import builder
from graphode.fields.activation import find_activation
from graphode.fields.fused_convolution import convolve, spread
from graphode.fields.fused_convolution import mix as mix_channels
from graphode.flows import kernels as flow_kernels
from graphode.flows.masks import MaskKey, hashed_positions, keyed_mask, mix, signed
from graphode.graphs import kernels as graph_kernels
from tests.ensembles.test_ensemble import SEEDS, STATIC
from tests.kernels import DEVICE, needs_triton

pytestmark = [needs_triton, pytest.mark.usefixtures("without_type_checks")]


@pytest.fixture(autouse=True)
def float32(monkeypatch):
    """What the kernels serve; the interpreter knows float32 products of one kind only."""
    torch.set_default_dtype(torch.float32)
    if DEVICE == "cpu":
        from graphode.fields import mixing_kernel

        monkeypatch.setattr(mixing_kernel, "PRECISIONS", {"highest": "ieee"})


def both_ways(run, monkeypatch):
    """What `run` returns without kernels and with them."""
    found = []
    for devices in (set(), {DEVICE}):
        monkeypatch.setattr(flow_kernels, "DEVICES", devices)
        monkeypatch.setattr(graph_kernels, "TRITON_DEVICES", devices)
        found.append(run())
    return found


def assert_near(plain, fused, tolerance=2e-5):
    assert len(plain) == len(fused)
    for a, b in zip(plain, fused, strict=True):
        assert (a - b).norm() <= tolerance * a.norm() + 1e-6


def graph():
    return karate_club().normalize("sym").to(DEVICE, torch.float32)


@pytest.mark.parametrize("keys", [(), (3,), (2, 3)])
@pytest.mark.parametrize("rate", [0.1, 0.9])
def test_masks_are_the_same_bits(keys, rate):
    from graphode.flows.mask_kernel import drop, prefix_and_word

    seeds = torch.arange(torch.Size(keys).numel(), device=DEVICE).reshape(keys) * 2**37 + 3
    key = MaskKey(mix([seeds, 5]), mix([2**63 + 11, 4]))
    positions = hashed_positions((7, 5), torch.device(DEVICE))
    mask = keyed_mask(key.whole, rate, positions, torch.float32)
    prefix, word = prefix_and_word(key, torch.device(DEVICE))
    ones = torch.ones(max(1, prefix.numel()), 7, 5, device=DEVICE)
    dropped = drop(ones, prefix.reshape(-1), word, None, rate, positions)
    assert torch.equal(dropped.reshape(mask.shape), mask)


@pytest.mark.parametrize("activation", [None, "relu", "softplus", "tanh"])
@pytest.mark.parametrize("widths", [(64, 64), (5, 7), (16, 3)])
@pytest.mark.parametrize("lead", [(), (2,)])
def test_a_convolution_with_its_gradients(activation, widths, lead, monkeypatch):
    inputs, outputs = widths
    h = torch.randn(*lead, 34, inputs, device=DEVICE, requires_grad=True)
    weight = torch.randn(inputs, outputs, device=DEVICE, requires_grad=True)
    bias = torch.randn(outputs, device=DEVICE, requires_grad=True)
    dropout = gd.Dropout(0.4)

    def run():
        with gd.stochastic(3, 1):
            y = convolve(h, weight, bias, graph(), activation, dropout)
        return [y, *torch.autograd.grad(y.sin().sum(), [h, weight, bias])]

    assert_near(*both_ways(run, monkeypatch))


@pytest.mark.parametrize("activation", ["softplus", "tanh"])
def test_a_convolution_has_second_derivatives(activation, monkeypatch):
    h = torch.randn(34, 4, device=DEVICE, requires_grad=True)
    weight = torch.randn(4, 4, device=DEVICE, requires_grad=True)
    bias = torch.randn(4, device=DEVICE, requires_grad=True)

    def run():
        y = convolve(h, weight, bias, graph(), activation)
        inputs = [h, weight, bias]
        first = torch.autograd.grad(y.sin().sum(), inputs, create_graph=True)
        return list(torch.autograd.grad(sum(g.square().sum() for g in first), inputs))

    assert_near(*both_ways(run, monkeypatch))


@pytest.mark.parametrize("activation", [None, "tanh"])
@pytest.mark.parametrize("lead", [(), (2, 3)])
def test_what_is_added_to_a_spread_state_with_its_gradients(activation, lead, monkeypatch):
    sigma = find_activation(activation)
    u, own = (torch.randn(*lead, 34, 5, device=DEVICE, requires_grad=True) for _ in range(2))
    bias = torch.randn(5, device=DEVICE, requires_grad=True)

    def run():
        y = spread(u, bias, graph(), sigma, own)
        inputs = [u, bias, own]
        first = torch.autograd.grad(y.sin().sum(), inputs, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), inputs)
        return [y, *first, *second]

    plain, fused = both_ways(run, monkeypatch)
    assert_near(plain, fused)
    torch.testing.assert_close(plain[0], sigma(graph().propagate(u) + own + bias))


@pytest.mark.parametrize("mapped", [(True, True, True), (True, None, True), (None, True, True)])
def test_what_is_added_to_a_spread_state_of_members(mapped, monkeypatch):
    shapes = [(34, 5), (5,), (34, 5)]
    inputs = [
        torch.randn(*([2] if has else []), *shape, device=DEVICE, requires_grad=True)
        for has, shape in zip(mapped, shapes, strict=True)
    ]
    dims = tuple(0 if has else None for has in mapped)

    def run():
        def one(u, bias, own):
            return spread(u, bias, graph(), torch.tanh, own)

        y = torch.func.vmap(one, dims)(*inputs)
        return [y, *torch.autograd.grad(y.sin().sum(), inputs)]

    assert_near(*both_ways(run, monkeypatch))


@pytest.mark.parametrize("model", ["gcde_gru", "gcde_lstm", "gcgru"])
def test_forecasters_of_traffic_with_their_gradients(model, monkeypatch):
    config = TrafficForecast.of(model, keep=0.5, hidden=6, members=2)
    x = torch.randn(2, 4, 5, 34, 3, device=DEVICE)  # members, windows, steps, sensors, channels
    times = torch.rand(2, 4, 6, device=DEVICE).cumsum(-1)

    def run():
        ensemble = gd.Ensemble(builder(config, 34, 1), SEEDS[:2]).to(DEVICE)
        torch.manual_seed(5)
        with torch.no_grad():  # heads begin at zero, and would let no gradient through
            for parameter in ensemble.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        with gd.stochastic(ensemble.seeds):
            y = ensemble(x, times[..., :-1], graph(), times[..., -1:], per_member=True)
        return [y, *torch.autograd.grad(y.sin().sum(), list(ensemble.parameters()))]

    assert_near(*both_ways(run, monkeypatch))


def test_states_that_share_a_weight_are_mapped(monkeypatch):
    h = torch.randn(3, 34, 5, device=DEVICE)
    weight = torch.randn(5, 4, device=DEVICE)
    members = torch.randn(2, 5, 4, device=DEVICE)

    def run():
        return [
            torch.func.vmap(lambda h: mix_channels(h, weight))(h),
            torch.func.vmap(lambda w: torch.func.vmap(lambda h: mix_channels(h, w))(h))(members),
        ]

    assert_near(*both_ways(run, monkeypatch))


def test_gradients_are_batched(monkeypatch):
    h = torch.randn(34, 5, device=DEVICE, requires_grad=True)
    layer, dense = gd.GraphConvolution(5, 4).to(DEVICE), gd.MLP(5, 8, 4).to(DEVICE)
    inputs = [h, *layer.parameters()]
    directions = torch.randn(2, 34, 4, device=DEVICE)

    def run():
        y, z = layer(h, graph()), dense(h)
        return [
            *torch.autograd.grad(y, inputs, directions, is_grads_batched=True),
            *torch.autograd.grad(z, h, directions, is_grads_batched=True),
        ]

    assert_near(*both_ways(run, monkeypatch))


def test_a_shared_field_is_mapped_over_states_and_over_seeds(monkeypatch):
    h = torch.randn(3, 34, 5, device=DEVICE)
    field = gd.GraphConvField([5, 5], dropout=0.3).to(DEVICE)

    def of_seed(seed):
        with gd.stochastic(seed, 0):
            return field(0.0, h[0], graph())

    def of_state(state):
        with gd.stochastic(3, 0):
            return field(0.0, state, graph())

    def run():
        seeds = torch.arange(4, device=DEVICE)
        return [torch.func.vmap(of_seed)(seeds), torch.func.vmap(of_state)(h)]

    assert_near(*both_ways(run, monkeypatch))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", ["GCN", "GCDE-rk4", "GCDE-dpr5", "GAT", "diffusion"])
def test_an_ensemble_with_its_gradients(name, sparse, monkeypatch):
    x = torch.rand(34, 12)
    x = x * (x > 0.5)
    features = gd.SparseFeatures(x).to(DEVICE) if sparse else x.to(DEVICE)

    def run():
        ensemble = gd.Ensemble(STATIC[name], SEEDS).to(DEVICE)
        with gd.stochastic(ensemble.seeds, 7):
            y = ensemble(features, graph())
        return [y, *torch.autograd.grad(y.square().sum(), list(ensemble.parameters()))]

    assert_near(*both_ways(run, monkeypatch))


def test_a_member_is_what_it_is_alone():
    x = gd.SparseFeatures(torch.rand(34, 12)).to(DEVICE)
    build = STATIC["GCDE-rk4"]
    ensemble = gd.Ensemble(build, SEEDS).to(DEVICE)
    with gd.stochastic(ensemble.seeds, 7):
        together = ensemble(x, graph())
    for index, seed in enumerate(SEEDS):
        torch.manual_seed(seed)
        lone = build(seed).to(DEVICE)
        with gd.stochastic(seed, 7):
            torch.testing.assert_close(lone(x, graph()), together[index], rtol=1e-5, atol=1e-6)


def test_steps_of_a_solver_are_combined_in_one_pass(monkeypatch):
    h = torch.randn(3, 34, 4, device=DEVICE, requires_grad=True)
    t1 = torch.tensor([0.5, 1.0, 2.0], device=DEVICE)
    field = gd.GraphConvField([4, 4], activation="tanh", final_activation="tanh").to(DEVICE)

    def run():
        found = []
        for flow, end in (
            (gd.Flow(field, solver="rk4_38", num_steps=2), 1.0),
            (gd.Flow(field, solver="dopri5", rtol=1e-5, atol=1e-6), t1),
        ):
            y = flow(h, graph(), 0.0, end)
            found += [y, *torch.autograd.grad(y.sin().sum(), [h, *field.parameters()])]
        return found

    assert_near(*both_ways(run, monkeypatch))


def test_adam_moves_every_member_as_the_plain_one_does(monkeypatch):
    def run():
        torch.manual_seed(0)
        parameters = [torch.randn(3, 5, 2, device=DEVICE), torch.randn(3, 700, device=DEVICE)]
        lr = torch.tensor([0.1, 0.01, 0.001], device=DEVICE)
        adam = MemberAdam(parameters, lr, weight_decay=5e-4)
        for _ in range(5):
            adam.step([torch.randn_like(p) for p in parameters])
        return parameters

    assert_near(*both_ways(run, monkeypatch))


@pytest.mark.skipif(DEVICE == "cpu", reason="no GPU here")
def test_a_captured_program_does_its_work_once_a_call():
    count = torch.zeros((), device=DEVICE)

    def step():
        count.add_(1)

    program = gd.capture(step, DEVICE)
    for _ in range(7):
        program()
    assert count.item() == 7


def test_a_program_on_a_cpu_is_the_function_itself():
    def step():
        pass

    assert gd.capture(step, "cpu") is step


def test_words_fit_into_signed_integers():
    for word in (0, 2**63 - 1, 2**63, 2**64 - 1):
        assert -(2**63) <= signed(word) < 2**63
        assert (signed(word) - word) % 2**64 == 0
