"""Nodes that come and go between flows."""

import numpy as np
import pytest
import torch
from torch import nn

import graphode as gd
from tests.hybrid.loops import gru_system, random_graph

IN, CHANNELS = 2, 3


def islands(*sizes: int) -> gd.Graph:
    """Components that do not touch each other."""
    blocks = [random_graph(size, seed, kind=None).to_dense() for seed, size in enumerate(sizes)]
    return gd.Graph.from_dense(torch.block_diag(*blocks)).normalize("sym")


def fixed_steps() -> gd.HybridSystem:
    """Fixed steps: with adaptive ones all nodes of a sample share a step size."""
    return gru_system(solver="rk4", num_steps=4)


def test_a_map_says_who_stays_comes_and_leaves():
    change = gd.NodeMap.between(["a", "b", "c"], ["c", "d", "a"])
    assert change.index.tolist() == [2, -1, 0]
    assert change.kept.tolist() == [0, 2]
    assert change.added.tolist() == [1]
    assert change.removed.tolist() == [1]
    assert (change.num_before, change.num_after) == (3, 3)
    state = torch.tensor([[1.0], [2.0], [3.0]])
    assert change.apply(state).flatten().tolist() == [3, 0, 1]


@pytest.mark.parametrize("make", [list, np.array, torch.tensor])
def test_a_map_may_be_a_list_or_an_array(make, without_type_checks):
    change = gd.NodeMap(make([2, -1, 0]), 3, removed=make([1]))
    assert change.added.tolist() == [1]
    assert change.apply(torch.tensor([[1.0], [2.0], [3.0]])).flatten().tolist() == [3, 0, 1]


def test_renumbering_changes_nothing_but_the_order():
    system, graph = gru_system(rtol=1e-9, atol=1e-10), random_graph(5)
    x = torch.randn(2, 3, 5, IN)
    times = torch.tensor([[0.0, 1.0, 1.5], [0.2, 0.5, 3.0]])
    order = torch.randperm(5)
    other = graph.subgraph(order)
    streamed = [x[:, 0], x[:, 1, order], x[:, 2, order]]
    y = system(streamed, times, [graph, other, other], [[4.0]] * 2, node_maps=[None, order, None])
    torch.testing.assert_close(y, system(x, times, graph, [[4.0]] * 2)[..., order, :])


def test_who_stays_does_not_notice_who_leaves_and_returns():
    """On components that do not touch: three nodes stay, two leave and come back."""
    system = fixed_steps()
    everyone, some = islands(3, 2), islands(3)
    x = torch.randn(2, 4, 5, IN)
    times = torch.tensor([[0.0, 1.0, 1.5, 2.0], [0.2, 0.5, 3.0, 3.1]])
    leave = gd.NodeMap.between("abcde", "abc")
    back = gd.NodeMap.between("abc", "abcde")
    streamed = [x[:, 0], x[:, 1, :3], x[:, 2], x[:, 3]]
    graphs = [everyone, some, everyone, everyone]
    queries = times[:, -1:] + torch.tensor([0.5, 1.0])
    y = system(streamed, times, graphs, queries, node_maps=[None, leave, back, None])
    steady = system(x, times, everyone, queries)
    torch.testing.assert_close(y[..., :3, :], steady[..., :3, :])
    assert not torch.allclose(y[..., 3:, :], steady[..., 3:, :])
    # They start anew: as if the first observation of theirs were the one on their return.
    returned = system(x[:, 2:], times[:, 2:], everyone, queries)
    torch.testing.assert_close(y[..., 3:, :], returned[..., 3:, :])


def test_newcomers_start_from_their_encoder():
    encoder = nn.Linear(IN, CHANNELS)
    flow = gd.Flow(gd.GraphConvField([CHANNELS] * 2), solver="rk4", num_steps=2)
    cell = gd.GraphGRUCell(IN, CHANNELS)
    system = gd.HybridSystem(flow=flow, jump=cell, newcomers=encoder)
    small, large = islands(2), islands(2, 2)
    x = [torch.randn(2, IN), torch.randn(4, IN)]
    state = system.observe(None, x[0], 0.0, small)
    after = system.observe(state, x[1], 1.0, large, node_map=torch.tensor([0, 1, -1, -1]))
    before = torch.cat([flow(state.h, small, 0.0, 1.0), encoder(x[1])[2:]])
    torch.testing.assert_close(after.h, cell(before, x[1], large))


def with_encoder() -> gd.HybridSystem:
    flow = gd.Flow(gd.GraphConvField([CHANNELS] * 2), solver="rk4", num_steps=2)
    cell, encoder = gd.GraphGRUCell(IN, CHANNELS), nn.Linear(IN, CHANNELS)
    return gd.HybridSystem(flow=flow, jump=cell, newcomers=encoder)


@pytest.mark.parametrize("seen", [(1, 2), (2,), (1,), (0, 1), (0,)])
def test_newcomers_of_a_sample_that_lacks_steps_are_those_of_its_lone_run(seen):
    """Before its first observation there is nobody to come to: all start at zero."""
    system, names = with_encoder(), ["abc", "bcd", "bcd"]
    graphs = [random_graph(3, seed) for seed in range(3)]
    x = [torch.randn(2, 3, IN) for _ in graphs]
    times, queries = torch.tensor([[0.0, 1.0, 2.0], [0.1, 0.9, 2.5]]), torch.tensor([[3.0], [3.0]])
    mask = [torch.tensor([True, step in seen]) for step in range(3)]
    maps = [None, gd.NodeMap.between(*names[:2]), None]
    y = system(x, times, graphs, queries, mask=mask, node_maps=maps)[1]
    own = [maps[step] if k else None for k, step in enumerate(seen)]
    lone_x, lone_graphs = ([values[step] for step in seen] for values in (x, graphs))
    alone = system([v[1] for v in lone_x], times[1, [*seen]], lone_graphs, [3.0], node_maps=own)
    if seen == (0,):  # it keeps the nodes it knew
        y, alone = y[:, :2], alone[:, 1:]
    torch.testing.assert_close(y, alone)


def test_newcomers_at_a_step_that_a_sample_lacks_are_refused():
    system, small, large = with_encoder(), islands(2), islands(2, 1)
    x = [torch.randn(2, 2, IN), torch.randn(2, 3, IN), torch.randn(2, 3, IN)]
    mask = [torch.tensor([True, step != 1]) for step in range(3)]
    times, maps = torch.tensor([[0.0, 1.0, 2.0]] * 2), [None, gd.NodeMap.between("ab", "abc"), None]
    given = (x, times, [small, large, large])
    with pytest.raises(ValueError, match=r"at step 1, .* sample 1 observes nothing, and later"):
        system(*given, [[3.0]] * 2, mask=mask, node_maps=maps)
    with pytest.raises(ValueError, match=r"at step 1, .* sample 1 observes nothing, and later"):
        system.absorb(*given, mask=mask, node_maps=maps)
    system.newcomers = None
    system(*given, [[3.0]] * 2, mask=mask, node_maps=maps)


def test_a_forecast_before_a_node_came_is_nan_for_it_and_right_for_others():
    system = fixed_steps()
    small, large = islands(2), islands(2, 1)
    x = [torch.randn(1, 2, IN), torch.randn(1, 3, IN)]
    times, queries = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 2.0]])
    comes = gd.NodeMap.between("ab", "abc")
    y = system(x, times, [small, large], queries, node_maps=[None, comes])
    alone = system(x[0][:, None], times[:, :1], small, queries[:, :1])
    torch.testing.assert_close(y[:, :1, :2], alone)
    assert y[0, 0, 2].isnan().all()
    assert y[0, 1].isfinite().all()


def test_samples_that_rest_keep_their_forecast_through_a_change_of_nodes():
    system = fixed_steps()
    everyone, some = islands(2, 1), islands(2)
    x = [torch.randn(2, 3, IN), torch.randn(2, 2, IN)]
    leave = gd.NodeMap(torch.tensor([0, 1]), 3, removed=[2])
    mask = [torch.tensor([True, True]), torch.tensor([False, True])]
    times = torch.tensor([[0.0, torch.nan], [0.0, 1.0]])
    queries = torch.tensor([[2.0], [2.0]])
    y = system(x, times, [everyone, some], queries, mask=mask, node_maps=[None, leave])
    alone = system(x[0][:1, None], times[:1, :1], everyone, queries[:1])
    torch.testing.assert_close(y[:1], alone[..., :2, :])


def test_nodes_change_with_an_observation_in_streaming_as_in_one_call():
    """A step without one is no step: its map comes with the next."""
    system = fixed_steps()
    graphs, leave = [islands(2, 1), islands(2)], gd.NodeMap.between("abc", "ab")
    x, times = [torch.randn(3, IN), torch.randn(2, IN), torch.randn(2, IN)], [0.0, 1.0, 2.0]
    mask = [torch.ones(n, dtype=torch.bool) for n in (3, 2, 2)]
    mask[1][:] = False
    y = system(x, times, [*graphs, graphs[1]], [1.5, 3.0], mask=mask, node_maps=[None, leave, None])
    first = system.observe(None, x[0], 0.0, graphs[0])
    with pytest.raises(ValueError, match=r"step 0, but sample 0 observes nothing.*next observ"):
        system.observe(first, x[1], 1.0, graphs[1], mask=mask[1], node_map=leave)
    last = system.observe(first, x[2], 2.0, graphs[1], node_map=leave)
    torch.testing.assert_close(system.forecast(first, 1.5)[:2], y[0])
    torch.testing.assert_close(system.forecast(last, 3.0), y[1])
    state = system.absorb(x, times, [*graphs, graphs[1]], mask, [None, leave, None])
    torch.testing.assert_close(system.forecast(state, 3.0), y[1])


def test_a_state_can_begin_with_a_change_of_nodes():
    system = fixed_steps()
    small, large = islands(2), islands(2, 2)
    state = system.observe(None, torch.randn(2, IN), 0.0, small)
    x = torch.randn(1, 4, IN)
    comes = gd.NodeMap.between("ab", "abcd")
    y = system(x, [1.0], large, [2.0], node_maps=[comes], state=state)
    step = system.observe(state, x[0], 1.0, large, node_map=comes)
    torch.testing.assert_close(y[0], system.forecast(step, 2.0))


def test_gradients_pass_through_a_change_of_nodes():
    system = fixed_steps()
    graphs = [islands(2, 1), islands(2)]
    leave = gd.NodeMap.between("abc", "ab")
    first, second = torch.randn(3, IN, requires_grad=True), torch.randn(2, IN, requires_grad=True)

    def run(first, second):
        return system([first, second], [0.0, 1.0], graphs, [2.0], node_maps=[None, leave])

    assert torch.autograd.gradcheck(run, (first, second))
    (gradient,) = torch.autograd.grad(run(first, second).sum(), first)
    assert (gradient[2] == 0).all()  # c touched nobody
    assert (gradient[:2] != 0).any()


def test_a_map_that_loses_a_node_is_refused(without_type_checks):
    with pytest.raises(ValueError, match=r"loses node 1 of 3 old nodes without saying so"):
        gd.NodeMap(torch.tensor([0, 2]), 3)
    with pytest.raises(ValueError, match=r"loses nodes 0, 2 of 3.*removed=\[0, 2\]"):
        gd.NodeMap(torch.tensor([1, -1]), 3)
    system = gru_system()
    x = [torch.randn(3, IN), torch.randn(2, IN)]
    with pytest.raises(ValueError, match="loses node 2 of 3 old nodes"):
        system(
            x,
            [0.0, 1.0],
            [islands(3), islands(2)],
            [2.0],
            node_maps=[None, torch.tensor([0, 1])],
        )


def test_maps_that_make_no_sense_are_refused(without_type_checks):
    with pytest.raises(ValueError, match="nodes 0 to 2, or −1 for a newcomer, but it names 3"):
        gd.NodeMap(torch.tensor([0, 1, 3]), 3)
    with pytest.raises(ValueError, match="node 0 is named more than once"):
        gd.NodeMap(torch.tensor([0, 0, 1, 2]), 3)
    with pytest.raises(ValueError, match="node 1 is named more than once"):
        gd.NodeMap(torch.tensor([0, 1, 2]), 3, removed=[1])
    with pytest.raises(ValueError, match="`removed` must name old nodes, but it names −1"):
        gd.NodeMap(torch.tensor([0, 1, 2]), 3, removed=[-1])
    with pytest.raises(ValueError, match="must be whole numbers"):
        gd.NodeMap(torch.tensor([0.0, 1.0]), 2)
    with pytest.raises(ValueError, match="Names must differ, but 'a' is twice in `before`"):
        gd.NodeMap.between("aa", "ab")
    with pytest.raises(ValueError, match="starts from 2 nodes, but the state has 3"):
        gd.NodeMap.between("ab", "ab").apply(torch.zeros(3, 1))


def test_errors_of_a_changing_network_name_the_remedy():
    system = gru_system()
    x, graphs = [torch.randn(3, IN), torch.randn(2, IN)], [islands(3), islands(2)]
    with pytest.raises(ValueError, match=r"Step 1 observes 2 nodes, but the state has 3.*NodeMap"):
        system(x, [0.0, 1.0], graphs, [2.0])
    leave = gd.NodeMap.between("abc", "ab")
    with pytest.raises(ValueError, match=r"one entry per step, 2, but holds 1"):
        system(x, [0.0, 1.0], graphs, [2.0], node_maps=[leave])
    with pytest.raises(ValueError, match="The first of `node_maps` leads from the nodes of"):
        system(x, [0.0, 1.0], graphs, [2.0], node_maps=[leave, None])
    with pytest.raises(ValueError, match=r"graph of step 1 must have the 2 nodes .* but has 3"):
        system(x, [0.0, 1.0], graphs[0], [2.0], node_maps=[None, leave])
    system.causal = False
    with pytest.raises(ValueError, match="`node_maps` need `causal=True`"):
        system(x, [0.0, 1.0], graphs, [2.0], node_maps=[None, leave])
    narrow = gd.HybridSystem(
        flow=None, jump=gd.GraphGRUCell(IN, CHANNELS), newcomers=nn.Linear(IN, 1)
    )
    with pytest.raises(ValueError, match="`newcomers` must give the 3 channels"):
        narrow(x[::-1], [0.0, 1.0], graphs[::-1], [2.0], node_maps=[None, torch.tensor([0, 1, -1])])
