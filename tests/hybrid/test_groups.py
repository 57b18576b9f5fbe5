"""Samples with gaps of like length, solved apart from the others, come out the same."""

import pytest
import torch

import graphode as gd
from graphode.hybrid import legs
from tests.hybrid.loops import gru_system, random_graph

SAMPLES, STEPS, NODES, IN = 7, 4, 5, 2


@pytest.fixture
def in_threes(monkeypatch: pytest.MonkeyPatch):
    """States of seven samples make three groups."""
    monkeypatch.setattr(legs, "GROUP_SIZE", 2 * NODES * 3)


def window() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.randn(SAMPLES, STEPS, NODES, IN)
    gaps = torch.tensor([0.1, 4.0]).repeat(SAMPLES * STEPS)[: SAMPLES * STEPS]
    times = (gaps.reshape(SAMPLES, STEPS) + torch.rand(SAMPLES, STEPS)).cumsum(-1)
    queries = times[:, 1:2] + torch.tensor([0.05, 3.0, 1.0])  # on the way, and out of order
    return x, times, queries


def gradients(system: gd.HybridSystem, y: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(y.square().sum(), list(system.parameters())))


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint"])
@pytest.mark.usefixtures("in_threes")
def test_groups_give_what_one_solve_gives(gradient: str):
    system, graph = gru_system(gradient=gradient), random_graph(NODES)
    x, times, queries = window()
    mask = torch.ones(SAMPLES, STEPS, dtype=torch.bool)
    mask[2, 1:] = False  # at rest from then on
    with gd.record_stats() as at_once:
        whole = system(x, times, graph, queries + 10, mask)
        on_the_way = system(x, times, graph, queries)
    system.by_length = True
    with gd.record_stats() as apart:
        torch.testing.assert_close(system(x, times, graph, queries + 10, mask), whole)
        y = system(x, times, graph, queries)
    torch.testing.assert_close(y, on_the_way)
    for mine, theirs in zip(gradients(system, y), gradients(system, on_the_way), strict=True):
        torch.testing.assert_close(mine, theirs)
    spent = [
        sum(int(s.field_calls) * len(s.evaluations) for s in each) for each in (at_once, apart)
    ]
    assert spent[1] < spent[0]


@pytest.mark.usefixtures("in_threes")
def test_samples_with_equal_gaps_stay_together():
    system, graph = gru_system(), random_graph(NODES)
    system.by_length = True
    x, times = torch.randn(SAMPLES, STEPS, NODES, IN), torch.arange(STEPS).expand(SAMPLES, -1)
    with gd.record_stats() as stats:
        system(x, times, graph, times[:, -1:] + 1)
    assert len(stats) == STEPS


@pytest.mark.usefixtures("in_threes")
def test_masks_are_those_of_the_whole_batch():
    """A batch that drops is one solve."""
    model = gd.GCDEGRU(IN, 3, field_dropout=0.5)
    x, times, _ = window()
    graph = random_graph(NODES)
    with gd.record_stats() as stats:
        model(x, times, graph, times[:, -1:] + 1)
    assert len(stats) == STEPS
    with gd.record_stats() as stats:
        model.eval()(x, times, graph, times[:, -1:] + 1)
    assert len(stats) > STEPS


class LosesEdges(gd.GraphConvField):
    """A field whose graph has other edges in every solve."""

    def __init__(self) -> None:
        super().__init__([3, 3], "tanh")
        self.edges = gd.EdgeDropout(0.5)

    def forward(self, t, h, graph):
        return super().forward(t, h, self.edges(graph))


@pytest.mark.usefixtures("in_threes")
def test_all_samples_of_a_batch_lose_the_same_edges():
    flow, graph = gd.Flow(LosesEdges()), random_graph(NODES)
    system = gd.HybridSystem(flow=flow, jump=gd.GraphGRUCell(IN, 3), by_length=True)
    x, times, queries = window()
    with gd.record_stats() as stats:
        system.train()(x, times, graph, queries)
    assert all(len(each.evaluations) == SAMPLES for each in stats)


@pytest.mark.usefixtures("in_threes")
def test_a_failing_sample_is_named_by_its_number_in_the_batch():
    flow, graph = gd.Flow(lambda t, h, graph: 1e3 * h.square()), random_graph(NODES)
    system = gd.HybridSystem(flow=flow, jump=gd.GraphGRUCell(IN, 3))
    x, times, queries = window()
    messages = []
    for system.by_length in (False, True):
        with pytest.raises(gd.SolveError) as caught:
            system(x, times, graph, queries)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("named", [False, True])
def test_queries_in_one_solve_have_the_masks_and_weights_of_their_samples(named: bool):
    """Fixed steps reach several queries at a time; masks are those of one query at a time."""
    ensemble = gd.Ensemble(
        lambda seed: gd.GCDEGRU(IN, 3, field_dropout=0.5, solver="rk4", num_steps=1), (0, 1)
    )
    x, times, _ = window()
    queries, graph = times[:, -1:] + torch.tensor([0.5, 1.0, 2.0]), random_graph(NODES)
    for member in range(2):
        model = ensemble.member(member)
        samples = torch.arange(SAMPLES) if named else None
        with gd.stochastic(member, 3, samples), gd.record_stats() as stats:
            y = model(x, times, graph, queries)
        assert len(stats) == STEPS
        for q in range(3):
            with gd.stochastic(member, 3, samples):
                alone = model(x, times, graph, queries[:, q : q + 1])
            torch.testing.assert_close(y[:, q : q + 1], alone, rtol=1e-12, atol=1e-13)
        if not named:
            with gd.stochastic(torch.arange(2), 3):
                together = ensemble(x, times, graph, queries)
            torch.testing.assert_close(together[member], y, rtol=1e-11, atol=1e-12)
