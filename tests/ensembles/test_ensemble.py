"""A member of an ensemble is what it would be alone: its answers, its gradients, its training."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import graphode as gd
from graphode.data import karate_club
from graphode.ensembles import fitting, members, members_that_fit, share_memory
from tests.fields.registry import CASES, CHANNELS, weighted_graph
from tests.hybrid.loops import random_graph

SEEDS = (3, 11, 2**40 + 5)
FEATURES, WIDTH, CLASSES = 12, 8, 3
STATIC = {
    "GCN": lambda seed: gd.GCN(FEATURES, WIDTH, CLASSES, layers=4),
    "GCN*": lambda seed: gd.GCN.star(FEATURES, WIDTH, CLASSES),
    "GCDE-rk2": lambda seed: gd.GCDE.rk2(FEATURES, WIDTH, CLASSES),
    "GCDE-rk4": lambda seed: gd.GCDE.rk4(FEATURES, WIDTH, CLASSES, redraw="per_eval"),
    "GCDE-dpr5": lambda seed: gd.GCDE.dpr5(FEATURES, WIDTH, CLASSES),
    "GADE": lambda seed: gd.GADE(FEATURES, WIDTH, CLASSES),
    "GMDE": lambda seed: gd.GMDE(FEATURES, WIDTH, CLASSES),
    "GCNII": lambda seed: gd.GDE(
        encoder=gd.LinearEncoder(FEATURES, WIDTH, dropout=0.5),
        flow=gd.Flow(
            gd.GCNIIField(WIDTH, dropout=0.5, layers=4, t1=4.0, redraw="per_eval"),
            solver="euler",
            num_steps=4,
        ),
        readout=gd.LinearReadout(WIDTH, CLASSES, 0.5),
        t1=4.0,
    ),
    "diffusion": lambda seed: gd.GDE(
        encoder=gd.MLP(FEATURES, WIDTH, CLASSES, dropout=[0.8, 0.5], node_dropout=0.3),
        flow=gd.Flow(
            gd.PathGate(gd.PageRankField(CLASSES, 0.1), CLASSES), solver="euler", num_steps=5
        ),
        t1=5.0,
    ),
    "GAT": lambda seed: gd.GAT(FEATURES, WIDTH, CLASSES),
    "MLP": lambda seed: gd.MLP(FEATURES, WIDTH, CLASSES, dropout=0.5),
}


def alone(build, seed):
    torch.manual_seed(seed)
    return build(seed)


def problem():
    x = torch.rand(34, FEATURES)
    return x * (x > 0.5), karate_club().normalize("sym").to(dtype=torch.get_default_dtype())


def assert_same(ensemble, build, call, tolerance=1e-12):
    """Answers and gradients of every member equal those of its lone run."""
    with gd.stochastic(ensemble.seeds, 7):
        together = call(ensemble)
    assert together.shape[0] == len(SEEDS)
    together.square().sum().backward()
    gradients = {name: tensor.grad for name, tensor in ensemble.lone_tensors().items()}
    for index, seed in enumerate(SEEDS):
        lone = alone(build, seed)
        with gd.stochastic(seed, 7):
            answer = call(lone)
        torch.testing.assert_close(together[index], answer, rtol=tolerance, atol=tolerance)
        answer.square().sum().backward()
        for name, parameter in lone.named_parameters():
            if parameter.grad is not None:
                torch.testing.assert_close(
                    gradients[name][index], parameter.grad, rtol=100 * tolerance, atol=tolerance
                )


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", STATIC)
def test_a_member_answers_as_it_would_alone(name, sparse):
    x, graph = problem()
    x = gd.SparseFeatures(x) if sparse else x
    build = STATIC[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(gd.Ensemble(build, SEEDS), build, lambda model: model(x, graph))


@pytest.mark.parametrize("name", CASES)
def test_every_field_flows_in_an_ensemble(name):
    case = CASES[name]
    graph = case.prepare(weighted_graph())
    h = torch.randn(2, graph.num_nodes, CHANNELS)

    def build(seed):
        flow = gd.Flow(case.build(), solver="heun", num_steps=3)
        return gd.GDE(flow=flow, readout=nn.Linear(CHANNELS, 2))

    ensemble = gd.Ensemble(build, SEEDS)
    if name == "Adaptive-sparse":
        # Which neighbours are best differs between members, and so do the places of the matrix.
        with pytest.warns(UserWarning, match="AdaptiveField cannot be mapped over members"):
            ensemble(h, graph)
    assert_same(ensemble, build, lambda model: model(h, graph), tolerance=1e-11)


MODELS_IN_TIME = {"GCDE-GRU": gd.GCDEGRU, "GCDE-LSTM": gd.GCDELSTM, "GCGRU": gd.GCGRU}


@pytest.mark.parametrize("name", MODELS_IN_TIME)
def test_hybrid_systems_are_ensembles_too(name):
    times = (0.1 + torch.rand(2, 4)).cumsum(-1)
    x, queries = torch.randn(2, 4, 5, 3), times[:, -1:] + torch.tensor([0.5, 1.0])
    graph = random_graph(5)

    def build(seed):
        return MODELS_IN_TIME[name](3, 6)

    ensemble = gd.Ensemble(build, SEEDS)
    assert_same(ensemble, build, lambda model: model(x, times, graph, queries), tolerance=1e-11)


class Trajectory(nn.Module):
    """The states at all times, and where a flow of the last of them ends."""

    members_first = True

    def __init__(self):
        super().__init__()
        self.flow = gd.Flow(gd.GraphConvField([3, 3]), solver="heun", num_steps=4)

    def forward(self, h, graph, times):
        states = self.flow.solve(h, graph, times).states.movedim(0, -3)
        return states + self.flow(h, graph, times[..., 0], times[..., -1])[..., None, :, :]


def test_members_share_output_times_that_are_a_tensor():
    graph, times = random_graph(5), torch.tensor([0.0, 0.3, 1.0])
    for h in (torch.randn(5, 3), torch.randn(2, 5, 3)):
        ensemble = gd.Ensemble(lambda seed: Trajectory(), SEEDS)
        assert_same(ensemble, lambda seed: Trajectory(), lambda model: model(h, graph, times))  # noqa: B023


def test_each_member_takes_its_own_steps():
    graph = karate_club().normalize("sym").to(dtype=torch.float64)

    class Decay(nn.Module):
        def __init__(self, seed):
            super().__init__()
            self.rate = nn.Parameter(torch.tensor(float(seed)))

        def forward(self, t, h, graph):
            return -self.rate * h

    h = torch.randn(34, 2)
    ensemble = gd.Ensemble(lambda seed: gd.GDE(flow=gd.Flow(Decay(seed))), (1, 30, 300))
    with gd.record_stats() as stats:
        ensemble(h, graph)
    alone_counts = []
    for seed in (1, 30, 300):
        solution = gd.Flow(Decay(seed)).solve(h, graph, [0.0, 1.0])
        alone_counts.append(int(solution.stats.evaluations))
    assert stats[0].evaluations.tolist() == alone_counts
    assert len(set(alone_counts)) == 3


def test_samples_may_share_times_and_a_mask_in_an_ensemble_too():
    """Given without the dimension of samples, before which an ensemble puts that of members."""
    x, graph = torch.randn(2, 4, 5, 3), random_graph(5)
    times, queries = torch.tensor([0.0, 1.0, 1.5, 3.0]), torch.tensor([3.5, 4.0])
    mask = torch.rand(4, 5) < 0.6
    mask[0] = True
    assert_same(
        gd.Ensemble(lambda seed: gd.GCDEGRU(3, 6), SEEDS),
        lambda seed: gd.GCDEGRU(3, 6),
        lambda model: model(x, times, graph, queries, mask),
        tolerance=1e-11,
    )


@pytest.mark.parametrize("name", ["GCDE-GRU", "GCGRU", "GRU"])
def test_series_may_differ_between_members(name):
    make = {**MODELS_IN_TIME, "GRU": lambda *widths: gd.FlatGRU(5, *widths)}[name]
    times = (0.1 + torch.rand(3, 2, 4)).cumsum(-1)
    x, queries = torch.randn(3, 2, 4, 5, 3), times[..., -1:] + 0.5
    graph = random_graph(5)
    ensemble = gd.Ensemble(lambda seed: make(3, 6), SEEDS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        together = ensemble(x, times, graph, queries, per_member=True)
    for index in range(3):
        lone = ensemble.member(index)(x[index], times[index], graph, queries[index])
        torch.testing.assert_close(together[index], lone, rtol=1e-11, atol=1e-11)


def test_a_member_is_a_plain_module_with_weights_of_its_own():
    x, graph = problem()
    ensemble = gd.Ensemble(STATIC["GCDE-rk4"], SEEDS).eval()
    member = ensemble.member(1)
    assert type(member) is gd.GCDE
    torch.testing.assert_close(member(x, graph), ensemble(x, graph)[1])
    with torch.no_grad():
        next(member.parameters()).zero_()
    assert not torch.allclose(member(x, graph), ensemble(x, graph)[1])
    with pytest.raises(IndexError, match="members 0 to 2, but 3"):
        ensemble.member(3)


def test_arguments_may_differ_between_members():
    x, graph = problem()
    xs = torch.stack([x, 2 * x, 3 * x])
    ensemble = gd.Ensemble(STATIC["GCDE-rk4"], SEEDS).eval()
    together = ensemble(xs, graph, per_member=True)
    for index in range(3):
        torch.testing.assert_close(together[index], ensemble.member(index)(xs[index], graph))


class Branching(nn.Module):
    """Decides by a value, which `vmap` cannot."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(FEATURES, 2))

    def forward(self, x, graph):
        out = x @ self.weight
        return out if out.sum() > 0 else -out


def test_what_cannot_be_mapped_is_looped_with_a_warning():
    x, graph = problem()

    def build(seed):
        return Branching()

    ensemble = gd.Ensemble(build, SEEDS)
    with pytest.warns(UserWarning, match="Branching cannot be mapped over members"):
        ensemble(x, graph)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        assert_same(ensemble, build, lambda model: model(x, graph))


class Late(nn.Module):
    """Makes its layer when it sees its first input."""

    def __init__(self):
        super().__init__()
        self.layer = None

    def forward(self, x):
        if self.layer is None:
            self.layer = nn.Linear(x.shape[-1], 2)
        return self.layer(x)


@pytest.mark.parametrize("seeds", [SEEDS, SEEDS[:1]], ids=["several", "one"])
def test_parts_made_in_forward_are_refused(seeds):
    x, _ = problem()
    with pytest.raises(RuntimeError, match=r"Late makes parameters.*Make them in its constructor"):
        gd.Ensemble(lambda seed: Late(), seeds)(x)


def test_layers_whose_width_is_open_are_refused_until_they_have_one():
    x, _ = problem()
    with pytest.raises(ValueError, match=r"'0\.weight' takes its shape from the first call"):
        gd.Ensemble(lambda seed: nn.Sequential(nn.LazyLinear(2)), SEEDS)

    def build(seed):
        module = nn.Sequential(nn.LazyLinear(2))
        module(x)
        return module

    assert_same(gd.Ensemble(build, SEEDS), build, lambda model: model(x))


def halved(module, inputs, outputs):
    return tuple(gradient / 2 for gradient in inputs)


def test_hooks_on_gradients_of_parts_are_called_for_every_member():
    def build(seed):
        layers = nn.Sequential(nn.Linear(FEATURES, 4), nn.Tanh(), nn.Linear(4, 2))
        layers[2].register_full_backward_hook(halved)
        return layers

    x, _ = problem()
    with pytest.warns(UserWarning, match="Sequential has backward hooks"):
        ensemble = gd.Ensemble(build, SEEDS)
    assert_same(ensemble, build, lambda model: model(x))


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_on_members_parameters_are_refused(register: str):
    def build(seed):
        layer = nn.Linear(FEATURES, 2)
        getattr(layer.weight, register)(lambda gradient: None)
        return layer

    with pytest.raises(ValueError, match=r"'weight' has one.*on the ensemble's parameters"):
        gd.Ensemble(build, SEEDS)


class Descent(nn.Module):
    """The slope of an energy, by autograd, which cannot be mapped."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, t, h, graph):
        with torch.enable_grad():
            h = h if h.requires_grad else h.detach().requires_grad_()
            return -torch.autograd.grad(self.layers(h).sum(), h, create_graph=True)[0]


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint", "checkpoint_adjoint"])
def test_members_may_flow_down_an_energy(gradient: str):
    def build(seed):
        flow = gd.Flow(Descent(), solver="rk4", num_steps=3, gradient=gradient)
        return gd.GDE(encoder=nn.Linear(FEATURES, FEATURES), flow=flow)

    x, graph = problem()
    with pytest.warns(UserWarning, match="Descent cannot be mapped"):
        assert_same(gd.Ensemble(build, SEEDS), build, lambda model: model(x, graph))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_of_torch_leave_an_ensemble_as_it_is(reentrant: bool):
    """Not reentrant, they end a recomputation by an exception, once they have what they need."""
    x, graph = problem()
    ensemble = gd.Ensemble(STATIC["GCN*"], SEEDS)
    x.requires_grad_()
    results = []
    for forward in (ensemble, lambda *given: checkpoint(ensemble, *given, use_reentrant=reentrant)):
        ensemble.zero_grad()
        with gd.stochastic(ensemble.seeds, 0), warnings.catch_warnings():
            warnings.simplefilter("error")
            forward(x, graph).square().sum().backward()
        results.append([parameter.grad for parameter in ensemble.parameters()])
    torch.testing.assert_close(*results)


def test_seeds_that_are_a_number_are_refused(without_type_checks):
    with pytest.raises(TypeError, match=r"`seeds` must be a sequence.*is 3.*`range\(3\)`"):
        gd.Ensemble(STATIC["GCN"], 3)


def test_seeds_that_are_no_whole_numbers_are_refused(without_type_checks):
    with pytest.raises(TypeError, match=r"whole numbers, but one is 1\.5.*`range\(3\)`"):
        gd.Ensemble(STATIC["GCN"], [1.5, 2.5])
    assert gd.Ensemble(STATIC["GCN"], torch.tensor([1, 2])).seeds.tolist() == [1, 2]


def test_a_sparse_tensor_is_refused_with_what_to_pass_instead():
    x, graph = problem()
    with pytest.raises(TypeError, match=r"torch\.sparse_coo.*`graphode\.SparseFeatures\(x\)`"):
        gd.Ensemble(STATIC["GCN"], SEEDS)(x.to_sparse(), graph)


class Answering(nn.Module):
    """A layer's output, as a function of it."""

    def __init__(self, answer):
        super().__init__()
        self.linear, self.answer = nn.Linear(FEATURES, 2), answer

    def forward(self, x, graph):
        return self.answer(self.linear(x), graph)


@pytest.mark.parametrize("large", [1, members.LARGE_MEMBER], ids=["one by one", "mapped"])
def test_answers_may_hold_what_is_the_same_for_all_members(large, monkeypatch):
    monkeypatch.setattr(members, "LARGE_MEMBER", large)
    x, graph = problem()

    def answer(y, graph):
        return {"y": y, "rest": (None, 3, "mean", graph, y.dtype)}

    found = gd.Ensemble(lambda seed: Answering(answer), SEEDS)(x, graph)
    assert found["y"].shape == (3, 34, 2)
    assert found["rest"] == (None, 3, "mean", graph, torch.float64)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda y, graph: (y, y.sum().item()), "tensors, or with a plain value that is the same"),
        (lambda y, graph: (y, {y}), "tensors, or with a plain value that is the same"),
        (lambda y, graph: (y,) if y.sum() > 0 else [y, y], "alike, but one .* another with a"),
    ],
    ids=["a number of its own", "an object", "another structure"],
)
def test_answers_that_are_not_tensors_are_refused(answer, text):
    x, graph = problem()
    ensemble = gd.Ensemble(lambda seed: Answering(answer), SEEDS)
    with pytest.raises(TypeError, match=text):
        ensemble(x, graph)


def test_seeds_of_other_members_are_refused():
    x, graph = problem()
    ensemble = gd.Ensemble(STATIC["GCDE-rk4"], SEEDS)
    with (
        gd.stochastic(torch.tensor([1, 2]), 0),
        pytest.raises(ValueError, match=r"one per member, 3, .* shape \[2\].*ensemble.seeds"),
    ):
        ensemble(x, graph)


def test_random_operations_of_torch_are_said_to_differ_from_lone_runs():
    x, _ = problem()
    ensemble = gd.Ensemble(
        lambda seed: nn.Sequential(nn.Linear(FEATURES, 2), nn.Dropout(0.5)), SEEDS
    )
    with pytest.warns(UserWarning, match="not as they would be alone.*`graphode.Dropout`") as said:
        ensemble(x)
    assert "the same results" not in str(said[0].message)


class OwnFlow(nn.Module):
    """A user's module around a flow, of which nothing is known."""

    def __init__(self):
        super().__init__()
        self.flow = gd.Flow(gd.GraphConvField([FEATURES, FEATURES]))

    def forward(self, x, graph):
        return self.flow(x, graph)[..., :2]


def test_a_users_module_around_a_flow_is_looped_unless_it_says_it_composes():
    x, graph = problem()
    with pytest.warns(UserWarning, match="OwnFlow holds a flow, and its members are evaluated one"):
        ensemble = gd.Ensemble(lambda seed: OwnFlow(), SEEDS)
    assert_same(ensemble, lambda seed: OwnFlow(), lambda model: model(x, graph))
    composing = type("Composing", (OwnFlow,), {"members_first": True})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ensemble = gd.Ensemble(lambda seed: composing(), SEEDS)
        assert_same(ensemble, lambda seed: composing(), lambda model: model(x, graph))


def test_without_a_key_every_call_draws_other_masks_for_every_member():
    x, graph = problem()
    ensemble = gd.Ensemble(lambda seed: alone(STATIC["GCN*"], 0), SEEDS)
    first, second = ensemble(x, graph), ensemble(x, graph)
    assert not torch.allclose(first, second)
    assert not torch.allclose(first[0], first[1])


@pytest.mark.parametrize(
    ("build", "seeds", "error", "text"),
    [
        (lambda seed: nn.Linear(2, 2), [], ValueError, "at least one seed"),
        (lambda seed: 3, [0], TypeError, "must return a module, but returned int"),
        (
            lambda seed: nn.Linear(2, 2 + seed),
            [0, 1],
            ValueError,
            "Members must be alike, but 'bias' is .* for seed 0 and .* for seed 1",
        ),
        (
            lambda seed: nn.ModuleDict({name: nn.Linear(2, 2) for name in ["ab", "ba"][seed]}),
            [0, 1],
            ValueError,
            r"seed 0 has 'a\.weight' where seed 1 has 'b\.weight'.*in one order",
        ),
    ],
)
def test_bad_ensembles_are_refused(build, seeds, error, text):
    with pytest.raises(error, match=text):
        gd.Ensemble(build, seeds)


def test_building_an_ensemble_leaves_the_generator_as_it_was():
    before = torch.get_rng_state()
    gd.Ensemble(STATIC["GCN*"], SEEDS)
    assert torch.equal(before, torch.get_rng_state())


def test_more_members_fit_into_more_memory(monkeypatch):
    x, graph = problem()
    build = STATIC["GCDE-rk4"]

    def step(ensemble):
        return ensemble(x, graph).sum()

    few, many = (members_that_fit(build, step, free=free) for free in (10**7, 10**8))
    assert 1 <= few < many
    assert members_that_fit(build, step, free=0) == 1
    assert many / few == pytest.approx(10, rel=0.3)
    monkeypatch.setattr(fitting, "_programs", 1)  # put back afterwards
    share_memory(2)
    assert members_that_fit(build, step, free=2 * 10**7) == few


def test_members_may_take_no_arguments():
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.value = nn.Parameter(torch.randn(3))

        def forward(self):
            return 2 * self.value

    ensemble = gd.Ensemble(lambda seed: Constant(), seeds=[0, 1])
    torch.testing.assert_close(ensemble()[1], ensemble.member(1)())
