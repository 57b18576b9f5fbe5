"""Operators of a graph from its matrix, written as the formulas are, to compare with ours."""

import torch
from torch import Tensor


def inverse_power(degrees: Tensor, exponent: float) -> Tensor:
    """D^exponent for a negative exponent, read as 0 where the degree is 0."""
    return torch.tensor([float(d) ** exponent if d > 0 else 0.0 for d in degrees]).diag()


def with_loops(matrix: Tensor) -> Tensor:
    """A loop of weight 1 at every node that has none."""
    return matrix + torch.diag((matrix.diagonal() == 0).to(matrix.dtype))


def convolution(matrix: Tensor) -> Tensor:
    """D^(-1/2) (A + I) D^(-1/2)."""
    looped = with_loops(matrix)
    scale = inverse_power(looped.sum(1), -0.5)
    return scale @ looped @ scale


def sym_laplacian(matrix: Tensor) -> Tensor:
    """D^(-1/2) (D − A) D^(-1/2)."""
    scale = inverse_power(matrix.sum(1), -0.5)
    return scale @ (matrix.sum(1).diag() - matrix) @ scale


def walk(matrix: Tensor) -> Tensor:
    """D^(-1) A."""
    return inverse_power(matrix.sum(1), -1.0) @ matrix


def ppmi(matrix: Tensor, length: int) -> Tensor:
    """What infinitely many walks along the edges find, from probabilities."""
    transition = walk(matrix.t())
    nodes = len(transition)
    frequency = torch.zeros(nodes, nodes)
    for first in range(length):
        start = torch.matrix_power(transition, first).sum(0)
        for distance in range(1, length - first + 1):
            frequency += start[:, None] * torch.matrix_power(transition, distance)
    frequency = frequency + frequency.t()
    frequency.fill_diagonal_(0)
    marginal = frequency.sum(0)
    information = torch.log(frequency * frequency.sum() / (marginal[:, None] * marginal))
    # Pairs that never meet have no information; nor has rounding.
    return torch.where(information > 1e-9, information, 0.0)
