"""Nodes that are silent, and steps that a sample does not have."""

import pytest
import torch
from torch import Tensor

import graphode as gd
from tests.hybrid.loops import gru_system, one_by_one, random_graph

BATCH, STEPS, NODES, IN = 3, 4, 5, 2


def window() -> tuple[Tensor, Tensor, Tensor]:
    times = (0.1 + torch.rand(BATCH, STEPS)).cumsum(-1)
    queries = torch.stack([times[:, 1] + 0.05, times[:, -1] + 0.7], -1)
    return torch.randn(BATCH, STEPS, NODES, IN), times, queries


def test_a_silent_node_flows_but_does_not_jump():
    system = gru_system(rtol=1e-8, atol=1e-9)
    graphs = [random_graph(NODES, k) for k in range(STEPS)]
    x, times, queries = window()
    mask = torch.rand(BATCH, STEPS, NODES) < 0.6
    mask[:, :, 0] = True
    with torch.no_grad():
        y = system(x, times, graphs, queries, mask=mask)
        for b in range(BATCH):
            for q, t in enumerate(queries[b].tolist()):
                reference = one_by_one(system, x[b], times[b], graphs, t, mask[b])
                torch.testing.assert_close(y[b, q], reference, rtol=1e-6, atol=1e-6)


def test_a_mask_of_everything_is_no_mask():
    system, graph = gru_system(), random_graph(NODES)
    x, times, queries = window()
    y = system(x, times, graph, queries)
    for shape in ((BATCH, STEPS), (BATCH, STEPS, NODES)):
        everything = torch.ones(shape, dtype=torch.bool)
        assert torch.equal(system(x, times, graph, queries, mask=everything), y)


@pytest.mark.parametrize("hidden", [torch.nan, torch.inf, 1e300])
def test_nothing_under_the_mask_is_seen(hidden):
    """Neither in values nor in gradients."""
    system, graph = gru_system(), random_graph(NODES)
    x, times, queries = window()
    mask = torch.rand(BATCH, STEPS, NODES) < 0.6
    mask[:, 0, 0] = True

    def run(x: Tensor) -> list[Tensor]:
        x = x.clone().requires_grad_()
        y = system(x, times, graph, queries, mask=mask)
        return [y, *torch.autograd.grad(y.square().sum(), [x, *system.parameters()])]

    for clean, dirty in zip(
        run(torch.where(mask[..., None], x, 0.0)),
        run(torch.where(mask[..., None], x, hidden)),
        strict=True,
    ):
        assert clean.isfinite().all()
        assert torch.equal(clean, dirty)


@pytest.mark.parametrize("by_node", [False, True])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padding", ["last time", "nan", "earlier", "later"])
def test_padded_is_unpadded(by_node, causal, padding):
    """To the bit of the sample alone, up to the rounding of sums over a batch."""
    system = gru_system(rtol=1e-4, atol=1e-5)
    system.causal = causal
    x, times, queries = window()
    queries[:, 0] = times[:, 0] + 0.05
    graphs = [random_graph(NODES, k) for k in range(STEPS)]
    own = [[0, 1, 2, 3], [0, 2], [1, 2]]  # the last begins late, the second has a gap
    mask = torch.zeros(BATCH, STEPS, dtype=torch.bool)
    for b, steps in enumerate(own):
        mask[b, steps] = True
    queries[2] += times[2, 1] - times[2, 0]
    filled = {
        "last time": times.where(mask, -torch.inf).cummax(-1)[0],
        "nan": times.where(mask, torch.nan),
        "earlier": times.where(mask, -5.0),
        "later": times.where(mask, 1e6),
    }[padding]
    spread = mask[..., None].expand(-1, -1, NODES) if by_node else mask
    padded_x = torch.where(mask[..., None, None], x, torch.nan)
    with torch.no_grad():
        y = system(padded_x, filled, graphs, queries, mask=spread)
        for b, steps in enumerate(own):
            kept = [graphs[k] for k in steps]
            alone = system(x[b, steps], times[b, steps], kept, queries[b])
            torch.testing.assert_close(y[b], alone, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("first", [None, "state"])
def test_a_query_at_the_first_observation_sees_its_graph(first):
    """Not that of a step before, which the sample does not have."""
    system = gd.HybridSystem(
        flow=None,
        jump=gd.GraphGRUCell(IN, 3),
        readout=lambda h, graph: graph.propagate(h + 1),
    )
    graphs = [random_graph(NODES, k) for k in range(STEPS)]
    x, times, _ = window()
    mask = torch.ones(BATCH, STEPS, dtype=torch.bool)
    mask[0, 0] = mask[1, 0] = mask[1, 1] = False
    own = [1, 2, 0]
    queries = times[range(BATCH), own][:, None]
    state = None if first is None else torch.randn(BATCH, NODES, 3)
    y = system(x, times, graphs, queries, mask=mask, state=state)
    for b, k in enumerate(own):
        start = None if state is None else state[b]
        alone = system(x[b, k:], times[b, k:], graphs[k:], queries[b], state=start)
        torch.testing.assert_close(y[b], alone)


def test_a_step_without_observations_is_an_exact_rest():
    """In a solver without error control even the last bit would show a detour."""
    system, graph = gru_system(solver="euler", num_steps=1), random_graph(NODES)
    x, times, queries = window()
    mask = torch.ones(BATCH, STEPS, dtype=torch.bool)
    mask[:, 2] = False
    kept = [0, 1, 3]
    y = system(x, times, graph, queries, mask=mask)
    assert torch.equal(y, system(x[:, kept], times[:, kept], graph, queries))


def test_a_mask_may_leave_out_dimensions_that_share_it():
    system, graph = gru_system(), random_graph(NODES)
    x, _, _ = window()
    times = torch.arange(STEPS).double()
    mask = torch.rand(STEPS, NODES) < 0.6
    mask[0] = True
    y = system(x, times, graph, torch.tensor([9.0]), mask=mask)
    full = mask.expand(BATCH, -1, -1)
    every = times.expand(BATCH, -1)
    same = system(x, every, graph, torch.full((BATCH, 1), 9.0), mask=full)
    assert torch.equal(y, same)


@pytest.mark.parametrize("shared", [False, True])
def test_a_square_mask_is_of_samples_and_steps(shared):
    """[4, 4] where steps, nodes and samples are 4, however the times are given."""
    system, graph = gru_system(), random_graph(4)
    x = torch.randn(4, 4, 4, IN)
    times = torch.arange(4.0) if shared else torch.rand(4, 4).cumsum(-1)
    mask = torch.rand(4, 4) < 0.6
    mask[:, 0] = True
    queries = torch.tensor([9.0])
    y = system(x, times, graph, queries, mask=mask)
    by_node = mask[..., None].expand(4, 4, 4)
    assert torch.equal(y, system(x, times, graph, queries, mask=by_node))
    for same in (times.numpy(), times.tolist()):
        assert torch.equal(y, system(x, same, graph, queries, mask=mask))


def test_a_mask_that_could_be_of_steps_or_of_nodes_is_refused():
    system, graph, times = gru_system(), random_graph(4), torch.arange(4.0)
    mask, queries = torch.tensor([True, True, False, True]), torch.tensor([9.0])
    message = r"shape \[4\] can be read as of steps or as of nodes .* \[3, 4\] or \[3, 4, 4\]"
    x = torch.randn(3, 4, 4, IN)
    with pytest.raises(ValueError, match=message):
        system(x, times, graph, queries, mask=mask)
    y = system(x[0], times, graph, queries, mask=mask)  # [*batch, steps] of one sample
    assert torch.equal(y, system(x[0], times, graph, queries, mask=mask[:, None].expand(4, 4)))
    silent = system(x[:, :3], times[:3], graph, queries, mask=mask)  # of nodes, nothing else
    assert torch.equal(
        silent, system(x[:, :3], times[:3], graph, queries, mask=mask.expand(3, 3, 4))
    )
