"""Every field's equation in dense linear algebra, node by node: oracles for the sparse ones.

`velocity(field, t, h, a)` is the velocity of one state `h [nodes, channels]` on the graph with the
matrix `a [target, source]`, normalised as a GCN's where the field wants that.
"""

import copy
import math
from functools import singledispatch

import torch
from torch import Tensor
from torch.nn import functional

from graphode import fields as F
from tests.graphs import dense


@singledispatch
def velocity(field: object, t: float, h: Tensor, a: Tensor) -> Tensor:
    raise NotImplementedError(f"no dense form of {type(field).__name__}")


@velocity.register
def _(field: F.GraphConvMap, t, h, a):
    matrix = dense.convolution(a)
    last = len(field.layers) - 1
    for index, layer in enumerate(field.layers):
        h = matrix @ h @ layer.weight + layer.bias
        h = (field.final_activation if index == last else field.activation)(h)
    return h


def softmax_of_neighbours(scores: Tensor, a: Tensor) -> Tensor:
    """Over the sources u of edges to v, and v itself; scores are [heads, v, u]."""
    seen = (a != 0) | torch.eye(len(a), dtype=torch.bool)
    return scores.masked_fill(~seen, -torch.inf).softmax(-1)


@velocity.register
def _(field: F.AttentionField, t, h, a):
    x = field.source(h).unflatten(-1, field.source_attention.shape).movedim(1, 0)
    if field.scores == "gat":
        of_source = (x * field.source_attention[:, None]).sum(-1)
        of_target = (x * field.target_attention[:, None]).sum(-1)
        scores = functional.leaky_relu(of_source[:, None] + of_target[:, :, None], 0.2)
    else:
        r = field.target(h).unflatten(-1, field.source_attention.shape).movedim(1, 0)
        pairs = functional.leaky_relu(x[:, None] + r[:, :, None], 0.2)
        scores = (pairs * field.source_attention[:, None, None]).sum(-1)
    out = softmax_of_neighbours(scores, a) @ x
    out = torch.cat(list(out), -1) if field.concat else out.mean(0)
    return field.activation(out + field.bias)


@velocity.register
def _(field: F.MessagePassingField, t, h, a):
    # Cases with a `relative` message are given the graph as it is.
    matrix = a if field.relative else dense.convolution(a)
    here, there = h[:, None].expand(-1, len(h), -1), h[None].expand(len(h), -1, -1)
    seen = [there - here if field.relative else there]
    seen = [here, *seen] if field.see_target else seen
    summed = (matrix[..., None] * field.message(torch.cat(seen, -1))).sum(1)
    return summed if field.update is None else field.update(summed)


@velocity.register
def _(field: F.ConvField, t, h, a):  # around PyG's GCNConv
    return dense.convolution(a) @ h @ field.field.lin.weight.t() + field.field.bias


@velocity.register
def _(field: F.SecondOrder, t, h, a):
    x, v = h.chunk(2, -1)
    return torch.cat([v, velocity(field.field, t, h if field.sees_velocity else x, a)], -1)


@velocity.register
def _(field: F.GraphCONField, t, h, a):
    x, v = h.chunk(2, -1)
    force = field.activation(velocity(field.field, t, x, a))
    return torch.cat([v, force - field.frequency * x - field.damping * v], -1)


@velocity.register
def _(field: F.HigherOrder, t, h, a):
    channels = h.shape[-1] // field.order
    return torch.cat([h[:, channels:], velocity(field.field, t, h, a)], -1)


@velocity.register
def _(field: F.Augmented, t, h, a):
    return velocity(field.field, t, h, a)


@velocity.register
def _(field: F.Controlled, t, h, a):
    x, u = h.split([field.channels, field.control_channels], -1)
    if field.how == "add":
        dx = velocity(field.field, t, x + u @ field.weight, a)
    elif field.how == "source":
        dx = velocity(field.field, t, x, a) + u @ field.weight
    else:
        dx = velocity(field.field, t, h, a)
    return torch.cat([dx, torch.zeros_like(u)], -1)


@velocity.register
def _(field: F.TimeConcat, t, h, a):
    return velocity(field.field, t, torch.cat([h, torch.full((len(h), 1), t)], -1), a)


@velocity.register
def _(field: F.DepthVarying, t, h, a):
    count = len(field.terms[0])
    basis = {
        "chebyshev": lambda k: math.cos(k * math.acos(2 * t - 1)),
        "fourier": lambda k: (math.sin if k % 2 else math.cos)(2 * math.pi * ((k + 1) // 2) * t),
    }[field.basis]
    there = copy.deepcopy(field.field)
    with torch.no_grad():
        for parameter, terms in zip(there.parameters(), field.terms, strict=True):
            parameter += sum(basis(k) * terms[k - 1] for k in range(1, count + 1))
    return velocity(there, t, h, a)


def mixed(field, terms: list[Tensor]) -> Tensor:
    total = sum(x @ weight for x, weight in zip(terms, field.weight, strict=True))
    return field.activation(total + field.bias)


@velocity.register
def _(field: F.ChebField, t, h, a):
    x, one = dense.sym_laplacian(a) - torch.eye(len(a)), torch.eye(len(a))
    polynomials = [one, x, 2 * x @ x - one, 4 * x @ x @ x - 3 * x]
    return mixed(field, [p @ h for p in polynomials[: field.order + 1]])


@velocity.register
def _(field: F.CayleyField, t, h, a):
    scaled = field.zoom * dense.sym_laplacian(a) + 0j
    unit = 1j * torch.eye(len(a))
    diagonal = (scaled + unit).diagonal()[:, None]
    off = scaled - scaled.diagonal().diag()
    powers, y = [], h + 0j
    for _ in range(field.order):
        right = (scaled - unit) @ y
        y = right / diagonal
        for _ in range(field.iterations):
            y = (right - off @ y) / diagonal
        powers.append(y)
    return mixed(field, [h, *(2 * y.real for y in powers), *(-2 * y.imag for y in powers)])


@velocity.register
def _(field: F.SpectralField, t, h, a):
    eigenvalues, basis = torch.linalg.eigh(dense.sym_laplacian(a))
    knots = torch.linspace(0, 2, field.knots)
    spacing = 2 / (field.knots - 1)
    hats = [(1 - (eigenvalues - knot).abs() / spacing).clamp(min=0) for knot in knots]
    return mixed(field, [basis @ (hat[:, None] * (basis.t() @ h)) for hat in hats])


@velocity.register
def _(field: F.DualField, t, h, a):
    wide = dense.convolution(dense.ppmi(a, field.walks[0]))
    near = dense.convolution(a) @ h @ field.local.weight + field.local.bias
    return field.activation(near + wide @ h @ field.wide.weight)


@velocity.register
def _(field: F.DiffusionField, t, h, a):
    terms = [h]
    for step in (dense.walk(a), dense.walk(a.t())):
        terms += [torch.matrix_power(step, k) @ h for k in range(1, field.steps + 1)]
    return mixed(field, terms)


@velocity.register
def _(field: F.WalkPowerField, t, h, a):
    x = h[:, field.channels :]
    # −L/2, zero where nothing arrives.
    gain = (dense.walk(a) - torch.diag((a.sum(1) > 0).to(a.dtype))) / 2
    total, coefficient = x, 1.0
    for k in range(field.terms):
        coefficient *= (t - k) / (k + 1)
        total = total + coefficient * torch.matrix_power(gain, k + 1) @ x
    return torch.cat([field.activation(total @ field.weight), torch.zeros_like(x)], -1)


@velocity.register
def _(field: F.CGNNField, t, h, a):
    x, e = h.chunk(2, -1)
    one = torch.eye(len(a))
    dx = (field.alpha / 2 * (one + dense.convolution(a)) - one) @ x + e
    if field.generator is not None:
        basis = torch.linalg.matrix_exp(field.generator - field.generator.t())
        mixing = basis @ torch.sigmoid(field.raw_spectrum).diag() @ basis.t()
        dx = dx + x @ (mixing - torch.eye(len(mixing)))
    return torch.cat([dx, torch.zeros_like(e)], -1)


@velocity.register
def _(field: F.GCNIIField, t, h, a):
    x, start = h.chunk(2, -1)
    beta = math.log(field.mixing / (t + 1) + 1)
    seen = (1 - field.alpha) * dense.convolution(a) @ x + field.alpha * start
    weight = field.weight[math.floor(t / field.t1 * field.layers) if field.layers > 1 else 0]
    dx = field.activation((1 - beta) * seen + beta * seen @ weight) - x
    return torch.cat([dx, torch.zeros_like(start)], -1)


@velocity.register
def _(field: F.PageRankField, t, h, a):
    x, start = h[:, : field.channels], h[:, -field.channels :]
    dx = (1 - field.alpha) * dense.convolution(a) @ x + field.alpha * start - x
    return torch.cat([dx, torch.zeros_like(h[:, field.channels :])], -1)


@velocity.register
def _(field: F.PathGate, t, h, a):
    inside, x = h[:, : -field.channels], h[:, : field.channels]
    gate = 1.0
    if field.weight is not None:
        gate = 1 / (1 + torch.exp(-(x @ field.weight + field.bias)))
    return torch.cat([velocity(field.field, t, inside, a), gate * x], -1)


@velocity.register
def _(field: F.GRANDField, t, h, a):
    x, start = h[:, : field.channels], h[:, -field.channels :]
    seen = start if field.linear else x
    key, query = (
        part(seen).unflatten(-1, (field.heads, 3)).movedim(1, 0)
        for part in (field.key, field.query)
    )
    matrix = softmax_of_neighbours(key @ query.mT / math.sqrt(3), a).mean(0)
    dx = matrix @ x - x
    if field.beta is not None:
        dx = dx + field.beta * start
    return torch.cat([dx, torch.zeros_like(dx)], -1) if field.remembers else dx


@velocity.register
def _(field: F.AdaptiveField, t, h, a):
    width = len(field.depth)
    scores = (field.query(h) + t * field.depth) @ field.key(h).t() / math.sqrt(width)
    if field.neighbors is not None and field.neighbors < len(h):
        smallest = scores.topk(field.neighbors)[0][:, -1:]
        scores = scores.masked_fill(scores < smallest, -torch.inf)
    return field.activation(scores.softmax(-1) @ field.linear(h) + field.bias)


@velocity.register
def _(field: F.Costed, t, h, a):
    y = h[:, : h.shape[-1] - field.num_costs]
    noise = y[:, :0]
    if field.jacobian:
        y, noise = y.chunk(2, -1)
    dy, pulled = torch.autograd.functional.vjp(
        lambda y: velocity(field.field, t, y, a), y, noise if field.jacobian else y
    )
    rates = [dy, torch.zeros_like(noise)]
    rates += [dy.square().sum(-1, keepdim=True)] if field.kinetic else []
    rates += [pulled.square().sum(-1, keepdim=True)] if field.jacobian else []
    return torch.cat(rates, -1)
