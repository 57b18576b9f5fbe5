"""Coefficients: what consistency and order demand of them, and that they are the published ones."""

import numpy as np
import pytest
import scipy.integrate._ivp.dop853_coefficients as dop853
from numpy.testing import assert_allclose
from scipy.integrate import DOP853, RK23, RK45
from torchdiffeq._impl.dopri5 import _DORMAND_PRINCE_SHAMPINE_TABLEAU

from graphode.experiments.node_classification import NodeClassification
from graphode.flows.tableaus import TABLEAUS, Tableau

NAMES = list(TABLEAUS)
ADAPTIVE = [name for name, tableau in TABLEAUS.items() if tableau.e is not None]
CONTINUOUS = [name for name, tableau in TABLEAUS.items() if tableau.p is not None]


def matrix(rows: tuple[tuple[float, ...], ...], width: int) -> np.ndarray:
    return np.array([[*row, *[0.0] * (width - len(row))] for row in rows])


def arrays(tableau: Tableau) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return matrix(tableau.a, len(tableau.c)), np.array(tableau.b), np.array(tableau.c)


def order_conditions(a: np.ndarray, c: np.ndarray) -> dict[int, list[tuple[np.ndarray, float]]]:
    """Σ b_i φ_i = 1/γ for the trees of each order up to 5 (Butcher; Hairer et al., II.2)."""
    ac = a @ c
    return {
        1: [(np.ones_like(c), 1)],
        2: [(c, 1 / 2)],
        3: [(c**2, 1 / 3), (ac, 1 / 6)],
        4: [(c**3, 1 / 4), (c * ac, 1 / 8), (a @ c**2, 1 / 12), (a @ ac, 1 / 24)],
        5: [
            (c**4, 1 / 5),
            (c**2 * ac, 1 / 10),
            (ac**2, 1 / 20),
            (c * (a @ c**2), 1 / 15),
            (a @ c**3, 1 / 20),
            (c * (a @ ac), 1 / 30),
            (a @ (c * ac), 1 / 40),
            (a @ (a @ c**2), 1 / 60),
            (a @ (a @ ac), 1 / 120),
        ],
    }


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_consistent(name: str):
    tableau = TABLEAUS[name]
    a, b, c = arrays(tableau)
    assert b.sum() == pytest.approx(1, abs=1e-14)
    assert_allclose(a.sum(1), c, rtol=1e-14, atol=2e-14)
    assert all(len(row) == stage for stage, row in enumerate(tableau.a))


@pytest.mark.parametrize("name", NAMES)
def test_order_conditions_hold_up_to_the_order_and_no_further(name: str):
    tableau = TABLEAUS[name]
    a, b, c = arrays(tableau)
    missed = {
        order: max(abs(b @ phi - value) for phi, value in trees)
        for order, trees in order_conditions(a, c).items()
    }
    for order, miss in missed.items():
        if order <= tableau.order:
            assert miss < 1e-13
        elif order == tableau.order + 1:
            assert miss > 1e-4


@pytest.mark.parametrize("name", ["dopri8"])
def test_quadrature_conditions_hold_up_to_order_eight(name: str):
    _, b, c = arrays(TABLEAUS[name])
    for power in range(8):
        assert b @ c**power == pytest.approx(1 / (power + 1), abs=1e-13)
    assert abs(b @ c**8 - 1 / 9) > 1e-6


@pytest.mark.parametrize("name", ADAPTIVE)
def test_embedded_solution_has_its_order(name: str):
    """e = b − b̂ vanishes on all trees up to the embedded order, and not beyond."""
    tableau = TABLEAUS[name]
    a, _, c = arrays(tableau)
    assert tableau.e is not None
    estimates = [(tableau.e, tableau.error_order)]
    if tableau.e_low is not None:
        # DOP853 combines an estimate of order 5 and one of order 3 into one of order 7.
        estimates = [(tableau.e, 5), (tableau.e_low, 3)]
    for weights, embedded in estimates:
        for order, trees in order_conditions(a, c).items():
            miss = max(abs(np.array(weights) @ phi) for phi, _ in trees)
            if order <= embedded:
                assert miss < 1e-13
            elif order == embedded + 1:
                assert miss > 1e-5


@pytest.mark.parametrize("name", CONTINUOUS)
def test_dense_output_joins_the_steps_smoothly(name: str):
    """At θ = 0 and 1 it has the states and the derivatives of the two ends."""
    tableau = TABLEAUS[name]
    assert tableau.p is not None
    p = np.array(tableau.p)
    powers = np.arange(1, p.shape[1] + 1)
    end = np.zeros(len(p))
    end[: len(tableau.c)] = tableau.b
    first, last = np.zeros(len(p)), np.zeros(len(p))
    first[0], last[len(tableau.c) - 1] = 1, 1
    assert tableau.first_same_as_last
    assert_allclose(p.sum(1), end, rtol=1e-14, atol=1e-12)
    assert_allclose(p[:, 0], first, rtol=1e-14, atol=1e-12)
    assert_allclose(p @ powers, last, rtol=1e-14, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "order"), [("bosh3", 3), ("dopri5", 4), ("tsit5", 4), ("dopri8", 5)]
)
def test_dense_output_satisfies_the_order_conditions_inside_the_step(name: str, order: int):
    """Σ b_i(θ) φ_i = θ^order/γ; dopri8's further trees are measured in test_order."""
    tableau = TABLEAUS[name]
    assert tableau.p is not None
    rows = (*tableau.a, *tableau.extra_a)
    a = matrix(rows, len(rows))
    c = np.array([*tableau.c, *tableau.extra_c])
    for theta in (0.2, 0.5, 0.9):
        p = np.array(tableau.p)
        weights = p @ theta ** np.arange(1, p.shape[1] + 1)
        for degree, trees in order_conditions(a, c).items():
            if degree <= order:
                for phi, value in trees:
                    assert weights @ phi == pytest.approx(value * theta**degree, abs=1e-11)


@pytest.mark.parametrize(
    ("name", "theirs"), [("bosh3", RK23), ("dopri5", RK45), ("dopri8", DOP853)]
)
def test_coefficients_are_scipys(name: str, theirs: type):
    tableau = TABLEAUS[name]
    a, b, c = arrays(tableau)
    stages = theirs.n_stages
    assert_allclose(c[:stages], theirs.C, rtol=1e-14, atol=1e-15)
    assert_allclose(b[:stages], theirs.B, rtol=1e-14, atol=1e-15)
    width = theirs.A.shape[1]
    assert_allclose(a[:stages, :width], theirs.A[:stages], rtol=1e-14, atol=1e-14)
    assert_allclose(a[-1, :stages], theirs.B, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize(("name", "theirs"), [("bosh3", RK23), ("dopri5", RK45)])
def test_error_weights_and_dense_output_are_scipys(name: str, theirs: type):
    tableau = TABLEAUS[name]
    assert tableau.e is not None
    assert tableau.p is not None
    # SciPy gives the error as b̂ − b for one pair and b − b̂ for the other; only its size counts.
    sign = np.sign(tableau.e[0] * theirs.E[0])
    assert_allclose(sign * np.array(tableau.e), theirs.E, rtol=1e-14, atol=1e-15)
    ours, scipys = np.array(tableau.p), theirs.P
    assert_allclose(ours, scipys[:, : ours.shape[1]], rtol=1e-14, atol=1e-12)


def test_dop853_estimates_and_extra_stages_are_scipys():
    tableau = TABLEAUS["dopri8"]
    assert_allclose(tableau.e, dop853.E5, rtol=1e-14, atol=1e-15)
    assert_allclose(tableau.e_low, dop853.E3, rtol=1e-14, atol=1e-15)
    assert_allclose(tableau.extra_c, dop853.C[13:], rtol=1e-14, atol=1e-15)
    assert_allclose(matrix(tableau.extra_a, 16), dop853.A[13:], rtol=1e-14, atol=1e-15)


def test_torchdiffeqs_dopri5_estimates_two_thirds_of_the_error():
    # Which is why preset `authors` has tolerances 1.5 times the authors'.
    theirs = _DORMAND_PRINCE_SHAMPINE_TABLEAU.c_error.tolist()
    ours = TABLEAUS["dopri5"].e
    assert ours is not None
    assert_allclose(ours, 1.5 * np.array(theirs), atol=1e-15)
    authors = NodeClassification.of("gcde_dpr5", preset="authors")
    printed = NodeClassification.of("gcde_dpr5")
    assert_allclose((authors.rtol, authors.atol), (1.5 * printed.rtol, 1.5 * printed.atol))
