"""Masks are functions of their key: they come back, and they are random enough."""

import math

import pytest
import torch
from torch import Tensor, nn

import graphode as gd
from graphode.flows.masks import hashed_positions, keyed_mask, mix
from graphode.flows.stochastic import SolveNoise, noise_of
from tests.problems import ring_laplacian

CPU = torch.device("cpu")
GRADIENTS = ["backprop", "checkpoint", "adjoint", "checkpoint_adjoint"]


class NoisyField(nn.Module):
    """tanh(L dropout(h) W)."""

    def __init__(self, **options: object) -> None:
        super().__init__()
        self.dropout = gd.Dropout(0.5, **options)
        self.weight = nn.Parameter(torch.randn(3, 3))
        self.laplacian = ring_laplacian(6)

    def forward(self, t: Tensor, h: Tensor, graph: object) -> Tensor:
        return torch.tanh(self.laplacian @ (self.dropout(h) @ self.weight))


def mask(*key: int | Tensor, rate: float = 0.5, shape: tuple[int, ...] = (300, 40)) -> Tensor:
    return keyed_mask(mix(list(key)), rate, hashed_positions(shape, CPU), torch.float64)


def gradients_of(field: NoisyField, h: Tensor, **options: object) -> list[Tensor]:
    with gd.stochastic(7, 3):
        end = gd.Flow(field, **options)(h)
    # Backward runs outside the context, as a training loop may.
    return list(torch.autograd.grad(end.square().sum(), [h, field.weight]))


def test_a_key_gives_one_mask_and_another_key_another():
    assert torch.equal(mask(1, 2), mask(1, 2))
    assert not torch.equal(mask(1, 2), mask(2, 1))
    assert not torch.equal(mask(1, 2), mask(1, 3))


def test_keys_on_the_device_give_the_masks_of_keys_on_the_host():
    on_device = mask(torch.tensor(5), torch.tensor(-4), 2**63 + 11)
    assert torch.equal(on_device, mask(5, -4, 2**63 + 11))


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_masks_drop_at_their_rate_and_keep_the_mean(rate: float):
    masks = torch.stack([mask(seed, rate=rate) for seed in range(50)])
    deviation = math.sqrt(rate * (1 - rate) / masks.numel())
    assert (masks == 0).double().mean().item() == pytest.approx(rate, abs=4 * deviation)
    assert masks.max().item() == pytest.approx(1 / (1 - rate))


def test_masks_of_neighbouring_keys_and_positions_are_uncorrelated():
    signs = torch.stack([mask(0, step).flatten() - 1 for step in range(40)])
    bound = 5 / math.sqrt(signs.shape[1])
    between = (signs @ signs.T) / signs.shape[1] - torch.eye(40)
    assert between.abs().max().item() < bound
    for shift in (1, 2, 40):
        along = (signs[:, shift:] * signs[:, :-shift]).mean(1)
        assert along.abs().max().item() < bound
    # Shifted copies of one another would show here.
    shifted = (signs[:1, 1:] * signs[1:, :-1]).mean(1)
    assert shifted.abs().max().item() < bound


def test_a_seed_per_member_gives_each_member_its_lone_mask():
    together = mask(torch.tensor([3, 8, 21]), 4)
    assert together.shape == (3, 300, 40)
    for index, seed in enumerate((3, 8, 21)):
        assert torch.equal(together[index], mask(seed, 4))


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_masks_come_back_in_the_backward_pass(gradient: str):
    field, h = NoisyField(), torch.randn(6, 3, requires_grad=True)
    options = {"solver": "dopri5", "rtol": 1e-10, "atol": 1e-12}
    expected = gradients_of(field, h, **options)
    found = gradients_of(field, h, gradient=gradient, **options)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("gradient", GRADIENTS)
def test_masks_come_back_also_where_the_model_is_evaluated_before_the_backward_pass(gradient: str):
    field, h = NoisyField(), torch.randn(6, 3)
    found = []
    for evaluated in (False, True):
        field.train().zero_grad()
        flow = gd.Flow(field, solver="rk4", num_steps=4, gradient=gradient)
        with gd.stochastic(1, 0):
            end = flow(h)
        field.train(not evaluated)
        end.sum().backward()
        assert field.training is not evaluated
        found.append([parameter.grad for parameter in field.parameters()])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("redraw", ["per_step", "per_eval"])
@pytest.mark.parametrize("options", [{"solver": "rk4", "num_steps": 11}, {"rtol": 1e-2}])
def test_redrawn_masks_come_back_under_checkpoint(redraw: str, options: dict[str, object]):
    field = NoisyField(redraw=redraw, force=True)
    h = torch.randn(6, 3, requires_grad=True)
    expected = gradients_of(field, h, **options)
    found = gradients_of(field, h, gradient="checkpoint", **options)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("redraw", "solver"),
    [
        ("per_step", "bosh3"),
        ("per_step", "dopri5"),
        ("per_step", "tsit5"),
        ("per_step", "dopri8"),
        ("per_eval", "bosh3"),
    ],
)
def test_redrawn_masks_come_back_for_samples_that_reject_a_step(redraw: str, solver: str):
    """While others move on, such a sample tries again from the derivative it had."""
    field = NoisyField(redraw=redraw, force=True)
    h = torch.randn(3, 6, 3, requires_grad=True)
    tolerance = 1e-4 if redraw == "per_step" else 1e-2
    options = {"solver": solver, "rtol": tolerance, "atol": tolerance}
    with gd.record_stats() as stats:
        expected = gradients_of(field, h, **options)
        found = gradients_of(field, h, gradient="checkpoint", **options)
    assert (stats[0].rejected > 0).any(), "The test misses its point."
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_within_a_solve_the_mask_is_fixed_and_between_solves_it_is_not():
    field, h = NoisyField(), torch.randn(6, 3)
    flow = gd.Flow(field, solver="rk4", num_steps=4)
    torch.manual_seed(0)
    first, second = flow(h), flow(h)
    torch.manual_seed(0)
    assert torch.equal(flow(h), first)
    assert not torch.equal(first, second)
    with gd.stochastic(1, 5):
        once = flow(h)
    with gd.stochastic(1, 5):
        assert torch.equal(flow(h), once)
    with gd.stochastic(1, 6):
        assert not torch.equal(flow(h), once)


@pytest.mark.parametrize(("redraw", "expected"), [("per_solve", 1), ("per_step", 3)])
def test_masks_are_redrawn_as_asked(redraw: str, expected: int):
    patterns: set[tuple[bool, ...]] = set()
    field = NoisyField(redraw=redraw)
    field.dropout.register_forward_hook(
        lambda module, inputs, output: patterns.add(tuple(output.ne(0).flatten().tolist()))
    )
    gd.Flow(field, solver="rk4", num_steps=3)(torch.randn(6, 3))
    assert len(patterns) == expected


class Decay(nn.Module):
    """h′ = −dropout(h): every component decays at rate 2 or rests, step by step."""

    def __init__(self, redraw: str) -> None:
        super().__init__()
        self.dropout = gd.Dropout(0.5, redraw=redraw)

    def forward(self, t: Tensor, h: Tensor, graph: object = None) -> Tensor:
        return -self.dropout(h)


ONE_STEP_OF_ONE_FUNCTION = [
    "bosh3", "dopri5", "tsit5", "dopri8", "rk4", "adams", "trapezoid", "collocation",
]  # fmt: skip


@pytest.mark.parametrize("solver", ONE_STEP_OF_ONE_FUNCTION)
def test_a_step_with_its_own_mask_takes_no_derivative_of_the_step_before(solver: str):
    """In each of three steps a component decays by one factor or by none."""
    flow, h = gd.Flow(Decay("per_step"), solver=solver, num_steps=3), torch.ones(8, 5)
    with gd.stochastic(1, 2):
        first = gd.Flow(Decay("per_step"), solver=solver, num_steps=1)(h, None, 0.0, 1 / 3)
        end = flow(h)
        # Nor of one that an output has asked for.
        served = flow.solve(h, None, [0.0, 0.3, 0.8, 1.0]).states[-1]
    factor = first.min()
    powers = factor ** torch.arange(4)
    distance = (end[..., None] - powers).abs().amin(-1)
    assert distance.max() < 1e-9
    assert {int((end - power).abs().le(1e-9).sum() > 0) for power in powers} == {1}
    torch.testing.assert_close(served, end, rtol=1e-9, atol=0)


def test_redrawing_at_every_evaluation_costs_an_adaptive_solver_dearly():
    h = torch.randn(6, 3)
    fixed = gd.Flow(NoisyField(), on_failure="status").solve(h, None, [0.0, 1.0])
    redrawn = gd.Flow(NoisyField(redraw="per_eval", force=True), on_failure="status")
    assert int(redrawn.solve(h, None, [0.0, 1.0]).stats.evaluations) > 3 * int(
        fixed.stats.evaluations
    )


@pytest.mark.parametrize(
    ("redraw", "options", "reason"),
    [
        ("per_eval", {}, "adaptive solver takes the redrawn masks for error"),
        ("per_eval", {"num_steps": 2, "gradient": "adjoint"}, "an adjoint solves the field"),
        ("per_step", {"gradient": "adjoint"}, "an adjoint solves the field"),
    ],
)
def test_redrawing_where_it_breaks_a_promise_is_refused(redraw: str, options: dict, reason: str):
    field = NoisyField(redraw=redraw)
    with pytest.raises(ValueError, match=f"{reason}.*redraw='per_solve'.*force=True"):
        gd.Flow(field, **options)(torch.randn(6, 3))
    field.eval()
    gd.Flow(field, **options)(torch.randn(6, 3))


class TorchNoise(nn.Module):
    """tanh(dropout(W h)) with a dropout of torch's."""

    def __init__(self, dropout: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), dropout)

    def forward(self, t: Tensor, h: Tensor, graph: object) -> Tensor:
        return torch.tanh(self.layers(h))


@pytest.mark.parametrize(
    "kind",
    [nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout],
)
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "adaptive solver takes the redrawn masks for error"),
        ({"solver": "rk4", "num_steps": 2, "gradient": "adjoint"}, "an adjoint solves the field"),
        ({"solver": "rk4", "num_steps": 2, "gradient": "checkpoint"}, "evaluate the field again"),
    ],
)
def test_dropout_of_torch_is_refused_where_the_field_must_be_a_function(
    kind: type[nn.Module], options: dict, reason: str
):
    field, h = TorchNoise(kind(0.5)), torch.randn(2, 4, 3)
    with pytest.raises(
        ValueError, match=f"'layers.1' is torch's {kind.__name__}.*{reason}.*`graphode.Dropout"
    ):
        gd.Flow(field, **options)(h)


def test_dropout_of_torch_is_left_alone_where_nothing_relies_on_its_masks():
    h = torch.ones(4, 3)
    noisy, fixed = TorchNoise(nn.Dropout(0.5)), {"solver": "rk4", "num_steps": 2}
    flow = gd.Flow(noisy, **fixed)
    assert not torch.equal(flow(h), flow(h))
    with torch.no_grad():
        gd.Flow(noisy, gradient="checkpoint", **fixed)(h)
    for drops_nothing in (TorchNoise(nn.Dropout(0.0)), noisy.eval()):
        gd.Flow(drops_nothing, gradient="adjoint")(h)


class Attends(nn.Module):
    """A field around a layer that has its dropout as a number."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, t: Tensor, h: Tensor, graph: object) -> Tensor:
        return self.layer(h, h, h)[0] if isinstance(self.layer, nn.MultiheadAttention) else -h


class RateOfOurs(nn.Module):
    """A module that remembers the rate of a mask of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = 0.5
        self.mask = gd.Dropout(self.dropout)

    def forward(self, t: Tensor, h: Tensor, graph: object) -> Tensor:
        return torch.tanh(self.mask(h))


def test_dropout_hidden_in_a_number_is_refused_where_the_field_must_be_a_function():
    h = torch.randn(4, 3)
    noisy = Attends(nn.MultiheadAttention(3, 1, dropout=0.5))
    for options in ({}, {"solver": "rk4", "num_steps": 2, "gradient": "checkpoint"}):
        with pytest.raises(ValueError, match=r"'layer' \(MultiheadAttention\) has dropout=0.5"):
            gd.Flow(noisy, **options)(h)
    gd.Flow(noisy, solver="rk4", num_steps=2)(h)
    gd.Flow(noisy.eval())(h)
    gd.Flow(Attends(nn.MultiheadAttention(3, 1)))(h)
    gd.Flow(RateOfOurs(), gradient="adjoint")(h)


class Hides(nn.Module):
    """L f(h), with f in a list, where a module does not look for others."""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.functions = [function]
        self.laplacian = ring_laplacian(6)

    def forward(self, t: Tensor, h: Tensor, graph: object) -> Tensor:
        return -self.laplacian @ self.functions[0](h)


def in_a_function(function: nn.Module):
    hides = Hides(function)
    return lambda t, h, graph: hides(t, h, graph)


WHERE = pytest.mark.parametrize("hidden", [Hides, in_a_function])


@WHERE
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_a_mask_that_a_field_hides_is_fixed_within_a_solve(hidden, gradient: str):
    h = torch.randn(6, 3, requires_grad=True)
    for options in ({"solver": "rk4", "num_steps": 20}, {"rtol": 1e-8, "atol": 1e-10}):
        with gd.stochastic(7, 3), gd.record_stats() as stats:
            y = gd.Flow(hidden(gd.Dropout(0.5)), gradient=gradient, **options)(h).sum()
        assert int(stats[0].evaluations) < 1000
        (gradient_of_h,) = torch.autograd.grad(y, h)
        # One function within a solve, and linear: its gradient times the state is its value.
        torch.testing.assert_close((gradient_of_h * h).sum(), y, rtol=1e-6, atol=1e-8)


@WHERE
@pytest.mark.parametrize("solver", ["rk4", "dopri5", "bosh3", "adams"])
def test_a_mask_by_step_is_the_same_hidden_or_not(hidden, solver: str):
    class Shows(Hides):
        def __init__(self, function: nn.Module) -> None:
            super().__init__(function)
            self.function = function
            function.name("")

    ends = []
    for kind in (Shows, hidden):
        flow = gd.Flow(kind(gd.Dropout(0.5, "per_step")), solver=solver, num_steps=3)
        for module in flow.modules():
            if isinstance(module, gd.Dropout):
                module.name("")  # the path that the hidden one has
        with gd.stochastic(1, 2):
            ends.append(flow(torch.ones(6, 3)))
    torch.testing.assert_close(*ends)


@WHERE
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "adaptive solver takes the redrawn masks for error"),
        ({"solver": "rk4", "num_steps": 2, "gradient": "adjoint"}, "an adjoint solves the field"),
        ({"solver": "rk4", "num_steps": 2, "gradient": "checkpoint"}, "evaluate the field again"),
    ],
)
def test_what_a_field_hides_is_noticed_when_it_draws(hidden, options: dict, reason: str):
    h = torch.randn(6, 3, requires_grad=True)
    torchs = gd.Flow(hidden(nn.Dropout(0.5)), on_failure="status", **options)
    said = f"The field draws random numbers .*{reason}"
    if options:
        with pytest.raises(ValueError, match=said):
            torchs(h)
    else:  # where it costs evaluations, and no gradient is wrong
        with pytest.warns(UserWarning, match=said):
            torchs(h)
    ours = gd.Flow(hidden(gd.Dropout(0.5, "per_eval")), **options)
    if options.get("gradient") == "checkpoint":  # which its masks come back for
        ours(h)
    else:
        with pytest.raises(ValueError, match=f"draws its masks per_eval, but .*{reason}"):
            ours(h)
    gd.Flow(hidden(nn.Dropout(0.5).eval()), **options)(h)
    gd.Flow(hidden(nn.Dropout(0.5)), solver="rk4", num_steps=2)(h)


def test_a_field_may_draw_once_what_all_its_evaluations_share():
    noise = []

    def field(t: Tensor, h: Tensor, graph: object) -> Tensor:
        if not noise:
            noise.append(torch.randn_like(h))
        return noise[0] - h

    assert gd.Flow(field)(torch.randn(6, 3)).isfinite().all()


def test_dropout_of_a_pyg_convolution_is_refused():
    layers = pytest.importorskip("torch_geometric.nn")
    graph = gd.Graph(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    field = gd.ConvField(layers.GATConv(3, 3, dropout=0.5))
    with pytest.raises(ValueError, match=r"\(GATConv\) has dropout=0.5"):
        gd.Flow(field)(torch.randn(3, 3), graph)
    gd.Flow(field.eval())(torch.randn(3, 3), graph)


def test_named_samples_have_their_masks_wherever_they_stand():
    field, h = NoisyField(), torch.randn(3, 6, 3)
    flow = gd.Flow(field, solver="rk4", num_steps=2)
    with gd.stochastic(0, 1, sample=torch.tensor([10, 11, 12])):
        together = flow(h)
    with gd.stochastic(0, 1, sample=torch.tensor([12])):
        alone = flow(h[2:])
    torch.testing.assert_close(together[2:], alone, rtol=1e-12, atol=1e-12)


def test_modules_have_masks_of_their_own_by_their_path():
    field = gd.GraphConvField([4, 4, 4], dropout=0.5)
    flow = gd.Flow(field)
    assert [module.path for module in field.dropouts] == ["field.dropouts.0", "field.dropouts.1"]
    h = torch.ones(5, 4)
    with gd.stochastic(0), noise_of(SolveNoise()):
        assert not torch.equal(field.dropouts[0](h), field.dropouts[1](h))
    assert flow.field is field


def test_edges_are_dropped_at_their_rate():
    graph = gd.Graph.from_dense(torch.ones(60, 60))
    with gd.stochastic(0):
        dropped = gd.EdgeDropout(0.25)(graph)
    kept = dropped.edge_weight.ne(0).double().mean().item()
    assert kept == pytest.approx(0.75, abs=0.04)
    assert gd.EdgeDropout(0.25).eval()(graph) is graph


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_a_rate_outside_its_range_is_refused(rate: float):
    with pytest.raises(ValueError, match="at least 0 and below 1"):
        gd.Dropout(rate)


@pytest.mark.usefixtures("without_type_checks")
def test_an_unknown_way_to_redraw_is_refused():
    with pytest.raises(ValueError, match="Unknown `redraw` 'often'"):
        gd.Dropout(0.5, redraw="often")


def test_masks_are_the_same_under_torch_func():
    dropout, h = gd.Dropout(0.5), torch.randn(5, 7)
    with gd.stochastic(3, 1):
        gradient = torch.func.grad(lambda h: dropout(h).sum())(h)
        _, tangent = torch.func.jvp(dropout, (h,), (torch.ones_like(h),))
        mask = dropout(torch.ones_like(h))
    torch.testing.assert_close(gradient, mask)
    torch.testing.assert_close(tangent, mask)


def test_large_masks_of_many_keys_are_those_of_each_alone():
    seeds = torch.tensor([[3, 8], [-21, 2**62]])
    together = mask(seeds, 4, shape=(300, 64))
    assert together.shape == (2, 2, 300, 64)
    for index, seed in enumerate(seeds.flatten().tolist()):
        assert torch.equal(together.flatten(0, 1)[index], mask(seed, 4, shape=(300, 64)))


def test_what_is_kept_from_inference_mode_serves_gradients():
    with torch.inference_mode():
        first = hashed_positions((11, 13), CPU)
    assert hashed_positions((11, 13), CPU) is first
    assert not first.is_inference()
