"""Costs along a flow and diagnostics of it, against what they should be."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import graphode as gd
from graphode import fields as F
from graphode.graphs import Graph
from tests.fields.registry import weighted_graph


def decay(t: Tensor, h: Tensor, graph: Graph) -> Tensor:
    """dh/dt = −h, whose Jacobian is −I."""
    return -h


def test_kinetic_energy_is_that_of_the_trajectory():
    field, h = F.Costed(decay), torch.randn(2, 5, 3)
    z = gd.Flow(field, rtol=1e-8, atol=1e-10)(field.pack(h), None, t1=1.5)
    torch.testing.assert_close(field.unpack(z), math.exp(-1.5) * h, rtol=1e-6, atol=1e-8)
    expected = h.square().sum((-2, -1)) * (1 - math.exp(-3)) / 2
    torch.testing.assert_close(field.costs(z)[..., 0], expected, rtol=1e-6, atol=1e-8)


def test_jacobian_norm_is_exact_for_a_multiple_of_the_identity():
    field, h = F.Costed(decay, jacobian=True), torch.randn(2, 5, 3)
    with torch.no_grad():
        z = gd.Flow(field)(field.pack(h), None, t1=2.0)
    torch.testing.assert_close(field.costs(z)[..., 1], torch.full((2,), 2.0 * 15))


def test_hutchinson_is_right_on_average():
    inside, graph = F.GraphConvField([3, 4, 3]), weighted_graph(4).normalize("sym")
    h = torch.randn(4, 3)
    jacobian = torch.autograd.functional.jacobian(lambda h: inside(0.0, h, graph), h)
    field = F.Costed(inside, kinetic=False, jacobian=True)
    rates = field(0.0, field.pack(h.expand(4000, 4, 3)), graph)
    estimate = field.costs(rates)[..., 0]
    error = estimate.mean() - jacobian.square().sum()
    assert error.abs() < 4 * estimate.std() / math.sqrt(4000)


def test_named_samples_have_their_signs_wherever_they_stand():
    field, h = F.Costed(decay, jacobian=True), torch.randn(3, 5, 4)
    with gd.stochastic(0, 1, sample=torch.tensor([10, 11, 12])):
        together = field.pack(h)
        wide = field.pack(h[:, None].expand(3, 2, 5, 4))
    with gd.stochastic(0, 1, sample=torch.tensor([12, 10])):
        torch.testing.assert_close(field.pack(h[[2, 0]]), together[[2, 0]])
    torch.testing.assert_close(wide[:, 1], together)
    signs = together[..., 4:8]
    torch.testing.assert_close(signs.abs(), torch.ones(3, 5, 4))
    assert not torch.equal(signs[0], signs[1])


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "checkpoint_adjoint"])
def test_costs_have_gradients_by_every_method(gradient: str):
    field = F.Costed(F.GraphConvField([4, 5, 4]), jacobian=True)
    graph, h = weighted_graph().normalize("sym"), torch.randn(2, 6, 4, requires_grad=True)
    packed, found = field.pack(h), []
    for method in ("backprop", gradient):
        flow = gd.Flow(field, rtol=1e-8, atol=1e-8, gradient=method)
        loss = field.costs(flow(packed, graph)).sum()
        inputs = [h, *field.parameters()]
        found.append(torch.autograd.grad(loss, inputs, retain_graph=True, materialize_grads=True))
    for exact, mine in zip(*found, strict=True):
        torch.testing.assert_close(mine, exact, rtol=1e-4, atol=1e-6)


def test_costs_and_diagnostics_are_the_same_in_inference_mode():
    inside, graph = F.GraphConvField([3, 4, 3]), weighted_graph().normalize("sym")
    field, h = F.Costed(inside, jacobian=True), torch.randn(2, 6, 3)
    z, flow = field.pack(h), gd.Flow(field, num_steps=2)

    def measured() -> list[Tensor]:
        estimates = [F.lipschitz_estimate, F.stiffness_estimate]
        rates = field(torch.tensor(0.3), z.clone(), graph)
        return [
            rates,
            flow(z, graph),
            *(estimate(inside, h.clone(), graph) for estimate in estimates),
        ]

    expected = [each.detach() for each in measured()]
    with torch.inference_mode():
        found = measured()
    assert not any(each.requires_grad for each in found)
    torch.testing.assert_close([each.clone() for each in found], expected)


def test_the_cost_of_the_jacobian_is_pushed_forward():
    field = F.Costed(F.GraphConvField([3, 4, 3]), jacobian=True).requires_grad_(False)
    graph = weighted_graph().normalize("sym")
    z = field.pack(torch.randn(6, 3))
    tangent = torch.randn_like(z)
    difference = field(0.3, z + 1e-6 * tangent, graph) - field(0.3, z - 1e-6 * tangent, graph)
    with forward_ad.dual_level():
        rates = field(0.3, forward_ad.make_dual(z, tangent), graph)
        pushed = forward_ad.unpack_dual(rates).tangent
    torch.testing.assert_close(pushed, difference / 2e-6, atol=1e-6, rtol=1e-6)


def test_costs_of_a_batch_are_those_of_its_graphs():
    graphs = [weighted_graph(n).normalize("sym") for n in (3, 5)]
    field = F.Costed(F.GraphConvField([4, 4]))
    states = [field.pack(torch.randn(2, n, 4)) for n in (3, 5)]
    batch = Graph.batch(graphs)
    costs = field.costs(field(0.0, torch.cat(states, 1), batch), batch)
    for k, (graph, z) in enumerate(zip(graphs, states, strict=True)):
        torch.testing.assert_close(costs[:, k], field.costs(field(0.0, z, graph)))


def test_nothing_to_account_for_is_refused():
    with pytest.raises(ValueError, match="Use the field itself"):
        F.Costed(decay, kinetic=False)


@pytest.mark.parametrize("kind", ["laplacian", "sym_laplacian"])
def test_dirichlet_energy_is_a_sum_over_edges(kind: str):
    graph, h = weighted_graph(), torch.randn(3, 6, 4)
    scale = torch.ones(6)
    if kind == "sym_laplacian":
        scale = torch.where(graph.degrees > 0, graph.degrees, 1.0) ** -0.5
    source, target = graph.edge_index
    scaled = h * scale[:, None]
    gaps = (scaled[:, source] - scaled[:, target]).square().sum(-1)
    expected = (graph.edge_weight * gaps).sum(-1) / 2
    for given in (graph, graph.normalize("sym")):
        torch.testing.assert_close(F.dirichlet_energy(h, given, kind), expected)


def test_diffusion_lowers_the_dirichlet_energy_along_depth():
    graph = weighted_graph()
    laplacian = graph.normalize("laplacian")
    flow = gd.Flow(lambda t, h, graph: -graph.propagate(h))
    states = flow.solve(torch.randn(2, 6, 3), laplacian, torch.linspace(0, 3, 7)).states
    energy = F.dirichlet_energy(states, graph, "laplacian")
    assert energy.shape == (7, 2)
    assert (energy.diff(dim=0) < 0).all()
    share = F.dirichlet_energy(states, graph, "laplacian", relative=True)
    assert (share.diff(dim=0) < 0).all()


def test_estimates_find_the_extremes_of_the_jacobian():
    matrix = torch.randn(12, 12)
    matrix[0, 0] += 8.0  # A gap below the largest values, so that the iterations converge.

    def linear(t: Tensor, h: Tensor, graph: Graph | None) -> Tensor:
        return (h.flatten(-2) @ matrix.t()).reshape(h.shape)

    h = torch.randn(2, 4, 3)
    largest = torch.linalg.matrix_norm(matrix, 2).expand(2)
    radius = torch.linalg.eigvals(matrix).abs().max().expand(2)
    found = F.lipschitz_estimate(linear, h, None, iterations=60)
    torch.testing.assert_close(found, largest, rtol=1e-3, atol=0)
    found = F.stiffness_estimate(linear, h, None, iterations=200)
    torch.testing.assert_close(found, radius, rtol=1e-2, atol=0)


@pytest.mark.parametrize("estimate", [F.lipschitz_estimate, F.stiffness_estimate])
def test_an_estimate_does_not_depend_on_the_rest_of_the_batch(estimate: Callable[..., Tensor]):
    field, graph, h = F.GraphConvField([4, 5, 4]), weighted_graph(), torch.randn(2, 3, 6, 4)
    together = estimate(field, h, graph, iterations=3)
    torch.testing.assert_close(together[1, 2], estimate(field, h[1, 2], graph, iterations=3))


def test_estimates_follow_a_solution_and_leave_no_trace():
    field, graph = F.AttentionField(4, scores="gatv2"), weighted_graph()
    times = torch.linspace(0, 1, 3)
    states = gd.Flow(field).solve(torch.randn(2, 6, 4), graph, times).states
    estimate = F.lipschitz_estimate(field, states, graph, times.reshape(3, 1, 1, 1))
    assert estimate.shape == (3, 2)
    assert not estimate.requires_grad
    jacobian = torch.autograd.functional.jacobian(lambda h: field(1.0, h, graph), states[2, 1])
    largest = torch.linalg.matrix_norm(jacobian.reshape(24, 24), 2)
    torch.testing.assert_close(estimate[2, 1], largest.detach(), rtol=1e-2, atol=0)
    constant = F.lipschitz_estimate(lambda t, h, graph: torch.ones(6, 4), states, graph)
    assert (constant < 1e-12).all()
