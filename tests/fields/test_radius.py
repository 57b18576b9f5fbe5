"""Fields on the graph of their own state, and messages between relative states."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

import graphode as gd
from graphode import fields as F
from graphode.graphs import DenseGraph, Graph, dense_radius_graph, radius_graph
from tests.fields.registry import CASES, Case, mlp, state, weighted_graph


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_field_moves_alike_on_matrix_and_edges(case: Case):
    field, sparse = case.build(), weighted_graph()
    h = state(field, 2, 6)
    expected = field(0.3, h, case.prepare(sparse))
    found = field(0.3, h, case.prepare(DenseGraph.from_graph(sparse)))
    torch.testing.assert_close(found, expected)


def maps() -> dict[str, nn.Module]:
    """Accelerations of [x, x′] in the plane."""
    return {
        "convolution": F.GraphConvMap([4, 6, 2]),
        "relative": F.RelativeMessageMap(mlp(4, 6, 2), mlp(4, 3, 2)),
        "pair force": F.PairForceMap(mlp(2, 6, 1), nn.Linear(4, 2)),
        "pair force alone": F.PairForceMap(mlp(2, 6, 1)),
    }


every_map = pytest.mark.parametrize("name", maps())


@every_map
def test_the_graph_is_that_of_the_predicted_positions(name: str):
    field = F.SecondOrder(maps()[name], sees_velocity=True)
    normalize = "sym" if name == "convolution" else None
    around = F.RadiusField(field, 0.5, normalize=normalize)
    z = torch.rand(3, 10, 4)
    for k in range(3):
        graph = radius_graph(z[k, :, :2], 0.5)
        graph = graph if normalize is None else graph.normalize(normalize)
        torch.testing.assert_close(around(0.0, z, None)[k], field(0.0, z[k], graph))
        assert around.graph_of(z[k]).edge_index.shape[1] == graph.num_edges
    assert around.graph_of(z).num_edges > 3 * 10 * (normalize is not None)


@every_map
@pytest.mark.parametrize("nodes", [5, 7])  # 7: no edge leads to the last
def test_a_state_of_other_nodes_is_refused(name: str, nodes: int):
    with pytest.raises(ValueError, match=rf"with 6 nodes, as the graph has, .* is \[{nodes}, "):
        maps()[name](0.0, torch.randn(nodes, 4), weighted_graph())


@every_map
@pytest.mark.parametrize("dense_nodes", [64, 0])
def test_particles_of_different_graphs_are_never_near(name: str, dense_nodes: int):
    field = F.SecondOrder(maps()[name], sees_velocity=True)
    around = F.RadiusField(field, 0.5, kernel=torch.exp, dense_nodes=dense_nodes)
    sizes = (3, 1, 6)
    batch = Graph.batch([Graph(torch.empty(2, 0, dtype=torch.long), size) for size in sizes])
    z = torch.rand(2, sum(sizes), 4)
    alone = torch.cat([around(0.0, part) for part in z.split(sizes, -2)], -2)
    torch.testing.assert_close(around(0.0, z, batch), alone)
    apart = torch.cat([around(0.0, part, batch) for part in z.split(1)])
    torch.testing.assert_close(apart, alone)


@every_map
def test_matrix_and_edges_give_one_velocity(name: str):
    field = F.SecondOrder(maps()[name], sees_velocity=True)
    z = torch.randn(2, 3, 7, 4)
    dense = F.RadiusField(field, 0.8, kernel=torch.exp)
    sparse = F.RadiusField(field, 0.8, kernel=torch.exp, dense_nodes=0)
    assert isinstance(dense.graph_of(z), DenseGraph)
    assert not isinstance(sparse.graph_of(z), DenseGraph)
    torch.testing.assert_close(dense(0.0, z), sparse(0.0, z))


@every_map
def test_relabelling_particles_relabels_their_velocities(name: str):
    field = F.RadiusField(F.SecondOrder(maps()[name], sees_velocity=True), 0.8)
    z, order = torch.randn(2, 7, 4), torch.randperm(7)
    torch.testing.assert_close(field(0.0, z[:, order]), field(0.0, z)[:, order])


@every_map
def test_gradcheck_through_a_rollout(name: str):
    field = F.RadiusField(F.SecondOrder(maps()[name], sees_velocity=True), 0.8, kernel=torch.exp)
    flow = gd.Flow(field, solver="rk4", num_steps=2)
    z = torch.randn(2, 5, 4, requires_grad=True)
    torch.autograd.gradcheck(lambda z: flow(z, None, 0.0, 0.1), (z,))


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_gradient_methods_agree_on_a_graph_that_moves(gradient: str):
    field = F.RadiusField(F.SecondOrder(maps()["relative"], sees_velocity=True), 0.8)
    z, found = torch.randn(2, 5, 4), []
    for method in ("backprop", gradient):
        flow = gd.Flow(field, solver="rk4", num_steps=20, gradient=method)
        loss = flow(z, None, 0.0, 0.02).square().sum()
        found.append(torch.autograd.grad(loss, list(field.parameters())))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-8)


@every_map
def test_members_and_samples_may_be_mapped(name: str):
    members = [maps()[name] for _ in range(3)]
    field = F.RadiusField(F.SecondOrder(members[0], sees_velocity=True), 0.8)
    stacked, _ = torch.func.stack_module_state(
        [F.RadiusField(F.SecondOrder(m, sees_velocity=True), 0.8) for m in members]
    )
    skeleton, z = copy.deepcopy(field).to("meta"), torch.randn(3, 6, 4)

    def velocity(parameters: dict[str, Tensor], z: Tensor) -> Tensor:
        return torch.func.functional_call(skeleton, parameters, (0.0, z))

    together = torch.func.vmap(velocity)(stacked, z)
    for k, member in enumerate(members):
        alone = F.RadiusField(F.SecondOrder(member, sees_velocity=True), 0.8)
        torch.testing.assert_close(together[k], alone(0.0, z[k]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_graphs_of_a_large_batch_in_half_precision_stay_apart(dtype: torch.dtype):
    sizes = [2, 1] * 1500
    batch = Graph.batch([Graph(torch.empty(2, 0, dtype=torch.long), size) for size in sizes])
    around = F.RadiusField(maps()["relative"], 50.0, normalize=None)
    near = around.graph_of(torch.zeros(sum(sizes), 4, dtype=dtype), batch)
    assert near.num_edges == 2 * 1500
    source, target = batch.node_graph[near.edge_index]
    assert torch.equal(source, target)


def test_an_infinite_radius_joins_all_of_one_graph_and_is_refused_for_a_batch():
    around = F.RadiusField(maps()["relative"], torch.inf, normalize=None)
    assert around.graph_of(torch.randn(5, 4)).num_edges == 20
    batch = Graph.batch([weighted_graph(2), weighted_graph(3)])
    with pytest.raises(ValueError, match="reaches across the graphs of a batch"):
        around.graph_of(torch.randn(5, 4), batch)


def test_a_rollout_of_a_batch_is_that_of_each_sample():
    field = F.RadiusField(F.SecondOrder(maps()["relative"], sees_velocity=True), 0.8)
    flow = gd.Flow(field, rtol=1e-6, atol=1e-6)
    z = torch.randn(3, 6, 4)
    together = flow(z, None, 0.0, 0.5)
    for k in range(3):
        torch.testing.assert_close(together[k], flow(z[k], None, 0.0, 0.5))


COMPILED = """
import torch
import graphode as gd
from graphode import fields as F

field = F.RadiusField(F.SecondOrder(F.GraphConvMap([4, 6, 2]), sees_velocity=True), 0.8)
flow = gd.Flow(field, solver="rk4", num_steps=2)
z = torch.randn(3, 6, 4)
compiled = torch.compile(flow, fullgraph=True, backend="eager")
torch.testing.assert_close(compiled(z, None, 0.0, 0.1), flow(z, None, 0.0, 0.1))
"""


def test_a_graph_that_moves_compiles_in_one_piece():
    # In a process of its own: dynamo cannot trace the checks that jaxtyping adds in tests.
    run = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_an_augmented_state_keeps_its_positions_first():
    field = F.RadiusField(F.Augmented(F.GraphConvField([6, 6]), 2), 0.8)
    h = torch.randn(5, 4)
    z = field.pack(h)
    assert z.shape == (5, 6)
    assert field.graph_of(z).to_dense().equal(field.graph_of(h).to_dense())
    assert field.unpack(z).equal(h)


def test_shifting_all_states_changes_no_relative_message():
    field = F.RelativeMessageMap(mlp(4, 6, 2))
    h, graph = torch.randn(5, 4), Graph.from_dense(torch.ones(5, 5))
    torch.testing.assert_close(field(0.0, h + 3, graph), field(0.0, h, graph))


def test_relative_messages_equal_a_loop_over_edges():
    field = F.RelativeMessageMap(mlp(4, 6, 2), mlp(4, 2))
    h, graph = torch.randn(6, 4), weighted_graph()
    expected = field.own(h)
    for (u, v), weight in zip(graph.edge_index.t().tolist(), graph.edge_weight, strict=True):
        expected = expected.index_add(
            0, torch.tensor([v]), weight * field.message(h[u] - h[v])[None]
        )
    torch.testing.assert_close(field(0.0, h, graph), expected)


def test_turning_the_plane_turns_the_pair_forces_and_their_sum_is_zero():
    field, angle = F.PairForceMap(mlp(2, 6, 1)), torch.tensor(0.8)
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).reshape(2, 2)
    h = torch.randn(3, 7, 4)
    turned = h @ torch.block_diag(turn, turn)
    force = field(0.0, h, dense_radius_graph(h[..., :2], 1.0))
    found = field(0.0, turned, dense_radius_graph(turned[..., :2], 1.0))
    torch.testing.assert_close(found, force @ turn)
    torch.testing.assert_close(force.sum(-2), torch.zeros(3, 2), rtol=0, atol=1e-12)


def test_pair_forces_can_be_those_of_the_particles():
    from graphode.data import Particles
    from graphode.data.particle_forces import NearPairs

    class Spring(nn.Module):
        def forward(self, seen: Tensor) -> Tensor:
            distance, rate = seen.split(1, -1)
            return (1 - distance) - 0.1 * rate

    class Anchor(nn.Module):
        def forward(self, h: Tensor) -> Tensor:
            return -h[..., :2]

    acceleration = F.PairForceMap(Spring(), Anchor())
    field = F.RadiusField(F.SecondOrder(acceleration, sees_velocity=True), 0.5, normalize=None)
    z = Particles().initial_states([0])[0]
    torch.testing.assert_close(field(0.0, z), NearPairs(Particles())(torch.tensor(0.0), z))


def test_nodes_in_one_place_exert_no_force_and_have_finite_gradients():
    field = F.PairForceMap(mlp(2, 6, 1))
    h = torch.zeros(2, 4, requires_grad=True)
    force = field(0.0, h, dense_radius_graph(h[..., :2], 1.0))
    assert force.equal(torch.zeros(2, 2))
    (gradient,) = torch.autograd.grad(force.sum(), h)
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize(
    "field",
    [
        F.PairForceMap(lambda seen: 1 / seen[..., :1] ** 2),
        F.RelativeMessageMap(lambda d: d / d.norm(dim=-1, keepdim=True)),
        F.RelativeMessageMap(lambda d: d.norm(dim=-1, keepdim=True).sqrt() * d),
        F.RelativeMessageMap(lambda d: d.square().sum(-1, keepdim=True).log() * d),
    ],
    ids=["an inverse square", "a direction", "a root", "a logarithm"],
)
def test_a_message_that_is_infinite_at_zero_is_not_asked_where_there_is_no_edge(field: nn.Module):
    h = torch.randn(6, 4, requires_grad=True)
    matrix = weighted_graph().to_dense()
    velocities, gradients = [], []
    for make in (Graph.from_dense, DenseGraph):
        weights = matrix.clone().requires_grad_()
        velocities.append(field(0.0, h, make(weights)))
        gradients.append(torch.autograd.grad(velocities[-1].square().sum(), (h, weights)))
    assert all(part.isfinite().all() for part in (velocities[0], *gradients[0]))
    torch.testing.assert_close(*velocities)
    torch.testing.assert_close(*gradients)


def test_nodes_in_one_place_exert_no_force_even_where_it_would_be_infinite():
    field = F.PairForceMap(lambda seen: 1 / seen[..., :1] ** 2)
    h = torch.tensor([[0.0, 0, 1, 0], [0, 0, 0, 1], [1, 1, 0, 0]], requires_grad=True)
    for make in (Graph.from_dense, DenseGraph):
        force = field(0.0, h, make(torch.ones(3, 3)))
        (gradient,) = torch.autograd.grad(force.square().sum(), h)
        torch.testing.assert_close(force[0], force[1])
        assert bool(gradient.isfinite().all())


def test_bad_settings_and_states_are_named():
    inner = F.GraphConvField([4, 4])
    with pytest.raises(ValueError, match="`radius` must be positive, but is 0"):
        F.RadiusField(inner, 0.0)
    with pytest.raises(ValueError, match="`position_channels` must be 1 or more, but is 0"):
        F.RadiusField(inner, 1.0, position_channels=0)
    with pytest.raises(ValueError, match=r"reads positions from the first 3 channels.*has 2"):
        F.RadiusField(inner, 1.0, position_channels=3)(0.0, torch.zeros(5, 2))
    graph = Graph.from_dense(torch.ones(5, 5))
    with pytest.raises(ValueError, match=r"`own` returned \[5, 3\].*have 2 channels"):
        F.RelativeMessageMap(nn.Linear(4, 2), nn.Linear(4, 3))(0.0, torch.zeros(5, 4), graph)
    with pytest.raises(ValueError, match="an even number of channels, but the state has 3"):
        F.PairForceMap(nn.Linear(2, 1))(0.0, torch.zeros(5, 3), graph)
