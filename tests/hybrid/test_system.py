"""A hybrid system against a plain loop over samples, times and queries."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn

import graphode as gd
from tests.hybrid.loops import gru_system, one_by_one, random_graph

BATCH, STEPS, NODES, IN, CHANNELS = 2, 4, 4, 2, 3


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def decay(h, graph, t0, t1):
    """An exact flow, per sample."""
    return h * torch.exp(t0 - t1)[..., None, None]


def window(batch: int = BATCH, steps: int = STEPS) -> tuple[Tensor, Tensor]:
    times = (0.1 + torch.rand(batch, steps)).cumsum(-1) + 10 * torch.rand(batch, 1)
    return torch.randn(batch, steps, NODES, IN), times


def queries_everywhere(times: Tensor) -> Tensor:
    """At the first time, at others, between, and after; not in order."""
    middle = 0.3 * times[:, 1] + 0.7 * times[:, 2]
    last = times[:, -1]
    moments = [last + 0.4, times[:, 0], times[:, 2], middle, last + 1.5, last, times[:, 1] + 1e-3]
    return torch.stack(moments, -1)


def expected(system, x, times, graphs, queries, mask=None) -> Tensor:
    """All samples and queries, with a graph for each sample and step."""
    rows = [
        [
            one_by_one(system, x[b], times[b], graphs[b], t, None if mask is None else mask[b])
            for t in queries[b].tolist()
        ]
        for b in range(len(x))
    ]
    return torch.stack([torch.stack(row) for row in rows])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("stream", ["one", "steps", "samples", "batches"])
def test_a_batch_is_its_samples_one_by_one(causal, stream):
    system = gru_system(rtol=1e-8, atol=1e-9)
    system.causal = causal
    x, times = window()
    queries = queries_everywhere(times)
    seeds = torch.arange(BATCH * STEPS).reshape(BATCH, STEPS)
    if stream == "one":
        seeds = torch.zeros_like(seeds)
    if stream == "steps":
        seeds = seeds[:1].expand(BATCH, -1)
    each = {int(seed): random_graph(NODES, int(seed)) for seed in seeds.unique()}
    nested = [[each[int(seed)] for seed in row] for row in seeds]
    graphs = {
        "one": nested[0][0],
        "steps": nested[0],
        "samples": nested,
        "batches": [gd.Graph.batch(step) for step in zip(*nested, strict=True)],
    }[stream]
    y = system(x, times, graphs, queries)
    assert y.shape == (BATCH, queries.shape[-1], NODES, 1)
    reference = expected(system, x, times, nested, queries)
    # Queries inside a step are read from dense output, to the order of the method.
    torch.testing.assert_close(y, reference, rtol=1e-6, atol=1e-6)


def test_a_result_does_not_depend_on_batch_mates():
    system, graph = gru_system(rtol=1e-3, atol=1e-4), random_graph(NODES)
    x, times = window()
    queries = queries_everywhere(times)
    together = system(x, times, graph, queries)
    for b in range(BATCH):
        alone = system(x[b], times[b], graph, queries[b])
        torch.testing.assert_close(together[b], alone, rtol=1e-12, atol=1e-12)


def test_who_asks_does_not_change_the_state():
    """Coarse steps, so that a restart at a query would show."""
    system, graph = gru_system(solver="rk4", num_steps=1), random_graph(NODES)
    x, times = window()
    after = times[:, -1:] + 1.0
    few = system(x, times, graph, after)
    many = system(x, times, graph, torch.cat([queries_everywhere(times)[:, :4], after], -1))
    torch.testing.assert_close(many[:, -1:], few, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "extension"),
    [
        *[
            (kind, "none")
            for kind in ("gru", "lstm", "lstm held", "rnn", "stacked", "last", "plain")
        ],
        *[("gru", extension) for extension in ("augmented", "controlled", "second order")],
        ("lstm held", "controlled"),
        ("stacked", "augmented"),
    ],
)
def test_every_cell_flows_along_every_kind_of_field(kind, extension):
    jump = {
        "gru": gd.GraphGRUCell(IN, CHANNELS),
        "lstm": gd.GraphLSTMCell(IN, CHANNELS),
        "lstm held": gd.GraphLSTMCell(IN, CHANNELS, cell_flows=False),
        "rnn": gd.GraphRNNCell(IN, CHANNELS),
        "stacked": gd.StackedCell([gd.GraphGRUCell(IN, 2), gd.GraphLSTMCell(2, 3)]),
        "last": gd.LastObservation(gd.GraphGRUCell(IN, CHANNELS)),
        "plain": lambda h, x, graph: 0.5 * h + x.sum(-1, keepdim=True),
    }[kind]
    width = jump.parts.flow_channels if isinstance(jump, nn.Module) else CHANNELS
    field = {
        "none": lambda: gd.GraphConvField([width, width]),
        "augmented": lambda: gd.Augmented(gd.GraphConvField([width + 2] * 2), 2),
        "controlled": lambda: gd.Controlled(gd.GraphConvField([width] * 2), width),
        "second order": lambda: gd.SecondOrder(gd.GraphConvField([width] * 2)),
    }[extension]()
    system = gd.HybridSystem(
        flow=gd.Flow(field, rtol=1e-6, atol=1e-7),
        jump=jump,
        channels=None if isinstance(jump, nn.Module) else CHANNELS,
    )
    graph, (x, times) = random_graph(NODES), window()
    queries = queries_everywhere(times)
    y = system(x, times, graph, queries)
    assert y.shape[-1] == system.parts.seen_channels
    reference = expected(system, x, times, [[graph] * STEPS] * BATCH, queries)
    torch.testing.assert_close(y, reference, rtol=1e-4, atol=1e-4)


def test_a_held_cell_state_is_held():
    jump = gd.GraphLSTMCell(IN, CHANNELS, cell_flows=False)
    flow = gd.Flow(gd.GraphConvField([CHANNELS] * 2))
    system, graph = gd.HybridSystem(flow=flow, jump=jump), random_graph(NODES)
    state = system.observe(None, torch.randn(NODES, IN), 0.0, graph)
    later = system.observe(state, torch.zeros(NODES, IN), 2.0, graph)
    moved = flow(state.h[:, :CHANNELS], graph, 0.0, 2.0)
    packed = torch.cat([moved, state.h[:, CHANNELS:]], -1)
    torch.testing.assert_close(later.h, jump(packed, torch.zeros(NODES, IN), graph))


def test_without_a_flow_time_makes_no_difference():
    system = gd.GCGRU(IN, CHANNELS)
    graph, (x, times) = random_graph(NODES), window()
    y = system(x, times, graph, times[:, -1:] + 5.0)
    other = system(x, 7 * times, graph, 7 * times[:, -1:] + 1.0)
    torch.testing.assert_close(y, other)
    h = torch.zeros(BATCH, NODES, CHANNELS)
    for k in range(STEPS):
        h = system.jump(h, x[:, k], graph)
    torch.testing.assert_close(y[:, 0], system.readout(h, graph))


def test_without_elapsed_time_a_hybrid_is_its_cell():
    system, graph = gru_system(), random_graph(NODES)
    x, _ = window()
    times = torch.arange(STEPS) * 1e-13
    y = system(x, times, graph, times[-1:] + 1e-13)
    h = torch.zeros(BATCH, NODES, CHANNELS)
    for k in range(STEPS):
        h = system.jump(h, x[:, k], graph)
    torch.testing.assert_close(y[:, 0], system.readout(h, graph), rtol=1e-10, atol=1e-10)


def test_the_state_starts_at_zero_and_the_first_query_reads_it():
    system, graph = gru_system(), random_graph(NODES)
    x, times = window()
    y = system(x, times, graph, times[:, :1])
    zero = system.readout(torch.zeros(BATCH, 1, NODES, CHANNELS), graph)
    torch.testing.assert_close(y, zero)


@pytest.mark.parametrize("causal", [True, False])
def test_nothing_later_reaches_a_forecast(causal):
    """At or after a query, no observation counts; nor does a graph, if flows are causal."""
    system = gru_system(rtol=1e-3, atol=1e-4)
    system.causal = causal
    x, times = window()
    queries = queries_everywhere(times)
    graphs = [random_graph(NODES, k) for k in range(STEPS)]
    before = system(x, times, graphs, queries)
    for k in range(STEPS):
        other = x.clone()
        other[:, k] += 1.0
        changed = [*graphs[:k], random_graph(NODES, 10 + k), *graphs[k + 1 :]]
        early = (queries <= times[:, k : k + 1])[..., None, None].expand_as(before)
        assert torch.equal(system(other, times, graphs, queries)[early], before[early])
        assert not torch.equal(system(other, times, graphs, queries)[~early], before[~early])
        seen = system(x, times, changed, queries)
        if causal:
            first = early if k else torch.zeros_like(early)
            torch.testing.assert_close(seen[first], before[first], rtol=0, atol=0)
        elif k > 1:
            between = (queries > times[:, k - 1 : k]) & (queries <= times[:, k : k + 1])
            between = between[..., None, None].expand_as(before)
            assert not torch.allclose(seen[between], before[between])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("by_length", [False, True])
@pytest.mark.parametrize("steps", [{"num_steps": 1}, {"step_size": 0.4}])
def test_no_later_time_and_no_other_query_changes_a_forecast_by_fixed_steps(
    steps, by_length, causal
):
    """One step, so that a way to somewhere else would show."""
    system, graph = gru_system(solver="rk4", **steps), random_graph(NODES)
    system.causal, system.by_length = causal, by_length
    x, times = window()
    queries = queries_everywhere(times)
    y = system(x, times, graph, queries)
    for q in range(queries.shape[-1]):
        alone = system(x, times, graph, queries[:, q : q + 1])
        torch.testing.assert_close(y[:, q : q + 1], alone, rtol=1e-12, atol=1e-13)
    for k in range(1, STEPS):
        postponed = times.clone()
        postponed[:, k:] += 2.7
        early = (queries <= times[:, k : k + 1])[..., None, None].expand_as(y)
        later = system(x, postponed, graph, queries)
        torch.testing.assert_close(later[early], y[early], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("steps", [{"num_steps": 1}, {"step_size": 0.4}])
def test_fixed_steps_reach_every_query_as_the_plain_loop_does(steps):
    system, x, times = gru_system(solver="rk4", **steps), *window()
    graphs = [[random_graph(NODES, 10 * b + k) for k in range(STEPS)] for b in range(BATCH)]
    queries = queries_everywhere(times)
    reference = expected(system, x, times, graphs, queries)
    torch.testing.assert_close(system(x, times, graphs, queries), reference)


def test_queries_at_the_end_of_a_leg_cost_no_solve_of_their_own():
    system, graph = gru_system(solver="rk4", num_steps=1), random_graph(NODES)
    x, times = window()
    with gd.record_stats() as stats:
        system(x, times, graph, torch.cat([times[:, 1:], times[:, -1:] + 1.0], -1))
    assert len(stats) == STEPS
    with gd.record_stats() as stats:
        system(x, times, graph, times[:, -1:] + torch.tensor([1.0, 2.0, 3.0]))
    assert len(stats) == STEPS - 1 + 3
    system.by_length = True
    with gd.record_stats() as stats:
        system(x, times, graph, times[:, -1:] + torch.tensor([1.0, 2.0, 3.0]))
    assert len(stats) == STEPS


@pytest.mark.parametrize("stream", ["one", "steps"])
def test_relabelling_nodes_relabels_the_forecast(stream):
    system = gru_system(rtol=1e-9, atol=1e-10)
    x, times = window()
    queries = queries_everywhere(times)
    graphs = [random_graph(NODES, k if stream == "steps" else 0) for k in range(STEPS)]
    order = torch.randperm(NODES)
    y = system(x[..., order, :], times, [graph.subgraph(order) for graph in graphs], queries)
    torch.testing.assert_close(y, system(x, times, graphs, queries)[..., order, :])


def test_further_leading_dimensions_are_samples_too():
    """As an ensemble has them: members first; times may leave them out."""
    system, graph = gru_system(), random_graph(NODES)
    x, times = window()
    queries = queries_everywhere(times)
    x = torch.stack([x, 2 * x])
    mask = torch.rand(BATCH, STEPS, NODES) < 0.7
    mask[:, 0] = True
    y = system(x, times, graph, queries, mask=mask)
    for member in range(2):
        alone = system(x[member], times, graph, queries, mask=mask)
        torch.testing.assert_close(y[member], alone, rtol=1e-12, atol=1e-12)
    batches = gd.Graph.batch([random_graph(NODES, b) for b in range(BATCH)])
    y = system(x, times, batches, queries)
    torch.testing.assert_close(y[1], system(x[1], times, batches, queries))


def test_parameters_do_not_depend_on_the_number_of_nodes():
    system = gru_system()
    for nodes in (2, 9):
        y = system(torch.randn(1, 2, nodes, IN), [[0.0, 1.0]], random_graph(nodes), [[2.0]])
        assert y.shape == (1, 1, nodes, 1)


def test_any_function_of_four_arguments_is_a_flow():
    jump = lambda h, x, graph: h + x  # noqa: E731
    system = gd.HybridSystem(flow=decay, jump=jump, channels=IN)
    x, times = window()
    queries = queries_everywhere(times)
    y = system(x, times, None, queries)
    gaps = queries[:, :, None] - times[:, None, :]
    weights = torch.where(gaps > 0, torch.exp(-gaps), 0.0)
    torch.testing.assert_close(y, torch.einsum("bqk,bknc->bqnc", weights, x))


@pytest.mark.parametrize("solver", ["euler", "heun", "rk4", "adams", "implicit_euler", "bosh3"])
def test_solvers_serve_queries_on_the_way(solver):
    """A linear field whose flow is known, to the order of the method."""
    steps = {"rtol": 1e-4, "atol": 1e-5} if solver == "bosh3" else {"num_steps": 60}
    decay = gd.Flow(lambda t, h, graph: -h, solver=solver, **steps)
    system = gd.HybridSystem(flow=decay, jump=lambda h, x, graph: h + x, channels=IN)
    x, times = window()
    queries = queries_everywhere(times)
    gaps = queries[:, :, None] - times[:, None, :]
    weights = torch.where(gaps > 0, torch.exp(-gaps), 0.0)
    exact = torch.einsum("bqk,bknc->bqnc", weights, x)
    tolerance = 0.05 if "euler" in solver else 2e-3
    torch.testing.assert_close(system(x, times, None, queries), exact, rtol=0, atol=tolerance)


def test_a_field_sees_the_time_of_each_sample():
    flow = gd.Flow(lambda t, h, graph: torch.cos(t) * torch.ones_like(h), rtol=1e-9, atol=1e-9)
    system = gd.HybridSystem(flow=flow, jump=lambda h, x, graph: h, channels=1)
    x, times = window()
    queries = queries_everywhere(times)
    exact = torch.sin(queries) - torch.sin(times[:, :1])
    y = system(x, times, None, queries)
    torch.testing.assert_close(y[..., 0, 0], exact, rtol=1e-6, atol=1e-6)


@settings(max_examples=25)
@given(st.data())
def test_random_ragged_windows_are_their_samples_one_by_one(data):
    """Lengths, times, masks, queries and graphs drawn at random; the flow is exact."""
    jump = lambda h, x, graph: 0.5 * h + graph.propagate(x)  # noqa: E731
    causal = data.draw(st.booleans())
    system = gd.HybridSystem(flow=decay, jump=jump, channels=IN, causal=causal)
    batch, steps, nodes = (data.draw(st.integers(1, 4)) for _ in range(3))
    graphs = [random_graph(nodes, k) for k in range(steps)]
    x = torch.randn(batch, steps, nodes, IN)
    gaps = st.lists(st.integers(1, 3), min_size=steps, max_size=steps)
    times = torch.tensor([data.draw(gaps) for _ in range(batch)]).cumsum(-1).double()
    cells = st.lists(st.booleans(), min_size=nodes * steps, max_size=nodes * steps)
    mask = torch.tensor([data.draw(cells) for _ in range(batch)]).reshape(batch, steps, nodes)
    mask[:, data.draw(st.integers(0, steps - 1)), 0] = True
    valid = mask.any(-1)
    first = torch.where(valid, times, torch.inf).amin(-1)
    ahead = st.lists(st.integers(0, 16), min_size=3, max_size=3)
    queries = first[:, None] + torch.tensor([data.draw(ahead) for _ in range(batch)]) / 2
    hidden = torch.where(mask[..., None], x, torch.nan)
    y = system(hidden, torch.where(valid, times, torch.nan), graphs, queries, mask=mask)
    for b in range(batch):
        own = valid[b].nonzero()[:, 0].tolist()
        for q, t in enumerate(queries[b].tolist()):
            h, now = torch.zeros(nodes, IN), float(first[b])
            for k in own:
                if times[b, k] >= t:
                    break
                h = h * torch.exp(now - times[b, k])
                seen = torch.where(mask[b, k, :, None], x[b, k], 0.0)
                h = torch.where(mask[b, k, :, None], jump(h, seen, graphs[k]), h)
                now = float(times[b, k])
            torch.testing.assert_close(y[b, q], h * torch.exp(torch.tensor(now - t)))
