"""Runge–Kutta methods as data: nodes, stage weights, solution weights, error weights.

A step of an explicit s-stage method, and its continuous extension for θ in [0, 1]:

    k_i = f(t + c_i dt, y + dt Σ_j a_ij k_j),   y⁺ = y + dt Σ_i b_i k_i,
    err = dt Σ_i e_i k_i,                       y(t + θ dt) = y + dt Σ_i (Σ_m P_im θ^m) k_i.

References:
    Hairer, Nørsett, Wanner, "Solving Ordinary Differential Equations I", 2nd ed., II.1–II.6.
    Bogacki, Shampine (1989), "A 3(2) pair of Runge–Kutta formulas".
    Dormand, Prince (1980), "A family of embedded Runge–Kutta formulae".
    Shampine (1986), "Some practical Runge–Kutta formulas" (the interpolant of dopri5).
    Tsitouras (2011), "Runge–Kutta pairs of order 5(4) satisfying only the first column
    simplifying assumption" (tsit5 and its interpolant).
"""

from dataclasses import dataclass
from functools import cached_property

from graphode.flows.dop853 import (
    DOP853_A,
    DOP853_B,
    DOP853_C,
    DOP853_E3,
    DOP853_E5,
    DOP853_EXTRA_A,
    DOP853_EXTRA_C,
    DOP853_P,
)

Row = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Tableau:
    """Coefficients of one explicit Runge–Kutta method.

    Args:
        c: Nodes.
        a: Lower-triangular stage weights, row i with i entries.
        b: Weights of the solution.
        order: Order of the solution.
        e: Weights of the error estimate, b − b̂; None for a method without one.
        e_low: Weights of a second, lower-order estimate; the two are combined as in DOP853.
        error_order: Order of the embedded solution; sets the exponent of the step-size control.
        p: Continuous extension, one row of powers θ¹, θ², … per stage; None means cubic Hermite.
        extra_c: Nodes of further stages that only the continuous extension needs.
        extra_a: Stage weights of those.
    """

    c: Row
    a: tuple[Row, ...]
    b: Row
    order: int
    e: Row | None = None
    e_low: Row | None = None
    error_order: int = 0
    p: tuple[Row, ...] | None = None
    extra_c: Row = ()
    extra_a: tuple[Row, ...] = ()

    @property
    def first_same_as_last(self) -> bool:
        """Whether the last stage is the derivative at the end of the step."""
        return self.c[-1] == 1 and self.b[-1] == 0 and self.a[-1] == self.b[:-1]

    @cached_property
    def error_constant(self) -> float | None:
        """C in the estimated error C (λ dt)^p dt |y′| of y′ = λ y, p the order of the estimate.

        C = |e Aᵖ 1|; None where there is no estimate, or more than one.
        """
        if self.e is None or self.e_low is not None:
            return None
        powers = [1.0] * len(self.c)
        for _ in range(self.error_order):
            powers = [sum(w * v for w, v in zip(row, powers, strict=False)) for row in self.a]
        return abs(sum(w * v for w, v in zip(self.e, powers, strict=False)))


def _difference(b: Row, b_low: Row) -> Row:
    return tuple(high - low for high, low in zip(b, b_low, strict=True))


EULER = Tableau(c=(0,), a=((),), b=(1,), order=1)
MIDPOINT = Tableau(c=(0, 1 / 2), a=((), (1 / 2,)), b=(0, 1), order=2)
HEUN = Tableau(c=(0, 1), a=((), (1,)), b=(1 / 2, 1 / 2), order=2)
RK4 = Tableau(
    c=(0, 1 / 2, 1 / 2, 1),
    a=((), (1 / 2,), (0, 1 / 2), (0, 0, 1)),
    b=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
    order=4,
)
# Kutta's 3/8 rule, the method torchdiffeq calls "rk4".
RK4_38 = Tableau(
    c=(0, 1 / 3, 2 / 3, 1),
    a=((), (1 / 3,), (-1 / 3, 1), (1, -1, 1)),
    b=(1 / 8, 3 / 8, 3 / 8, 1 / 8),
    order=4,
)

_BOSH3_B = (2 / 9, 1 / 3, 4 / 9, 0)
BOSH3 = Tableau(
    c=(0, 1 / 2, 3 / 4, 1),
    a=((), (1 / 2,), (0, 3 / 4), _BOSH3_B[:-1]),
    b=_BOSH3_B,
    e=_difference(_BOSH3_B, (7 / 24, 1 / 4, 1 / 3, 1 / 8)),
    order=3,
    error_order=2,
    # The cubic Hermite polynomial, written in the stages.
    p=((1, -4 / 3, 5 / 9), (0, 1, -2 / 3), (0, 4 / 3, -8 / 9), (0, -1, 1)),
)

_DOPRI5_B = (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0)
DOPRI5 = Tableau(
    c=(0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1),
    a=(
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        _DOPRI5_B[:-1],
    ),
    b=_DOPRI5_B,
    e=_difference(
        _DOPRI5_B,
        (5179 / 57600, 0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40),
    ),
    order=5,
    error_order=4,
    p=(
        (
            1,
            -8048581381 / 2820520608,
            8663915743 / 2820520608,
            -12715105075 / 11282082432,
        ),
        (0, 0, 0, 0),
        (
            0,
            131558114200 / 32700410799,
            -68118460800 / 10900136933,
            87487479700 / 32700410799,
        ),
        (
            0,
            -1754552775 / 470086768,
            14199869525 / 1410260304,
            -10690763975 / 1880347072,
        ),
        (
            0,
            127303824393 / 49829197408,
            -318862633887 / 49829197408,
            701980252875 / 199316789632,
        ),
        (0, -282668133 / 205662961, 2019193451 / 616988883, -1453857185 / 822651844),
        (0, 40617522 / 29380423, -110615467 / 29380423, 69997945 / 29380423),
    ),
)


def _quartic(scale: float, quadratic: Row) -> Row:
    """Powers of θ of `scale · θ² (θ² + q₁ θ + q₀)`."""
    q1, q0 = quadratic
    return (0, scale * q0, scale * q1, scale)


def _product(r: float, s: float) -> Row:
    """Coefficients (q₁, q₀) of (θ − r)(θ − s)."""
    return (-(r + s), r * s)


_TSIT5_B = (
    0.09646076681806523,
    0.01,
    0.4798896504144996,
    1.379008574103742,
    -3.290069515436081,
    2.324710524099774,
    0,
)
# b₁(θ) = s θ (θ − r)(θ² + q₁ θ + q₀), the only weight that is linear at θ = 0.
_S, _R = -1.0530884977290216, 1.3299890189751412
_Q1, _Q0 = -1.4364028541716351, 0.7139816917074209
TSIT5 = Tableau(
    c=(0, 0.161, 0.327, 0.9, 0.9800255409045097, 1, 1),
    a=(
        (),
        (0.161,),
        (-0.008480655492356989, 0.335480655492357),
        (2.8971530571054935, -6.359448489975075, 4.3622954328695815),
        (5.325864828439257, -11.748883564062828, 7.4955393428898365, -0.09249506636175525),
        (
            5.86145544294642,
            -12.92096931784711,
            8.159367898576159,
            -0.071584973281401,
            -0.028269050394068383,
        ),
        _TSIT5_B[:-1],
    ),
    b=_TSIT5_B,
    e=(
        -0.00178001105222577714,
        -0.0008164344596567469,
        0.007880878010261995,
        -0.1447110071732629,
        0.5823571654525552,
        -0.45808210592918697,
        1 / 66,
    ),
    order=5,
    error_order=4,
    p=(
        (-_S * _R * _Q0, _S * (_Q0 - _R * _Q1), _S * (_Q1 - _R), _S),
        _quartic(0.1017, (-2.1966568338249754, 1.2949852507374631)),
        _quartic(2.490627285651252793, (-2.38535645472061657, 1.57803468208092486)),
        _quartic(-16.54810288924490272, _product(1.21712927295533244, 0.61620406037800089)),
        _quartic(47.37952196281928122, _product(1.203071208372362603, 0.658047292653547382)),
        _quartic(-34.87065786149660974, _product(1.2, 2 / 3)),
        _quartic(2.5, _product(1, 0.6)),
    ),
)

# Hairer's DOP853: 12 stages, error from a 5th- and a 3rd-order estimate, 7th-order dense
# output from three further stages that are evaluated only when an output falls inside a step.
DOPRI8 = Tableau(
    c=DOP853_C,
    a=DOP853_A,
    b=DOP853_B,
    e=DOP853_E5,
    e_low=DOP853_E3,
    order=8,
    error_order=7,
    p=DOP853_P,
    extra_c=DOP853_EXTRA_C,
    extra_a=DOP853_EXTRA_A,
)

TABLEAUS: dict[str, Tableau] = {
    "euler": EULER,
    "midpoint": MIDPOINT,
    "heun": HEUN,
    "rk4": RK4,
    "rk4_38": RK4_38,
    "bosh3": BOSH3,
    "dopri5": DOPRI5,
    "tsit5": TSIT5,
    "dopri8": DOPRI8,
}
