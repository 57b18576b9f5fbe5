"""Chebyshev polynomials on [0, 1]: nodes, values, integrals.

Trefethen (2013), "Approximation Theory and Approximation Practice".
"""

import numpy as np
from numpy.polynomial import chebyshev
from torch import Tensor, ones_like


def lobatto_nodes(count: int) -> np.ndarray:
    """The `count` extrema of T_{count−1}, from 0 to 1, both ends included."""
    return (1 - np.cos(np.pi * np.arange(count) / (count - 1))) / 2


def basis(points: np.ndarray, degree: int) -> np.ndarray:
    """T_m(2 x − 1), `[points, degree + 1]`."""
    return chebyshev.chebvander(2 * np.asarray(points) - 1, degree)


def polynomials(x: Tensor, count: int) -> list[Tensor]:
    """T_m(2 x − 1), the first `count` of them, two or more, with gradients to x."""
    x = 2 * x - 1
    found = [ones_like(x), x]
    while len(found) < count:
        found.append(2 * x * found[-1] - found[-2])
    return found


def basis_derivative(points: np.ndarray, degree: int) -> np.ndarray:
    """d/dx T_m(2 x − 1), `[points, degree + 1]`."""
    columns = [
        2 * chebyshev.chebval(2 * np.asarray(points) - 1, chebyshev.chebder(row))
        for row in np.eye(degree + 1)
    ]
    return np.stack(columns, axis=-1)


def integration_matrix(nodes: np.ndarray) -> np.ndarray:
    """S with (S f)_i = ∫ from 0 to node i of the polynomial through the values f at the nodes."""
    degree = len(nodes) - 1
    integrals = []
    for row in np.eye(degree + 1):
        primitive = chebyshev.chebint(row, lbnd=-1) / 2
        integrals.append(chebyshev.chebval(2 * nodes - 1, primitive))
    return np.stack(integrals, axis=-1) @ np.linalg.inv(basis(nodes, degree))


def gauss_legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [0, 1], exact up to degree 2 · count − 1."""
    points, weights = np.polynomial.legendre.leggauss(count)
    return (points + 1) / 2, weights / 2
