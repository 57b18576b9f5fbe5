"""The solvers by name."""

from graphode.flows.adams import Adams
from graphode.flows.collocation import Collocation
from graphode.flows.implicit import ImplicitOneStep
from graphode.flows.leapfrog import Leapfrog
from graphode.flows.method import Method
from graphode.flows.runge_kutta import RungeKutta
from graphode.flows.tableaus import TABLEAUS

SOLVERS: tuple[str, ...] = (
    *TABLEAUS,
    "adams",
    "leapfrog",
    "implicit_euler",
    "trapezoid",
    "collocation",
)


def find_method(solver: str | Method, rtol: float, atol: float) -> Method:
    """The method called `solver`; a `Method` passes through."""
    if isinstance(solver, Method):
        return solver
    if solver in TABLEAUS:
        return RungeKutta(TABLEAUS[solver])
    match solver:
        case "adams":
            return Adams()
        case "leapfrog":
            return Leapfrog()
        case "implicit_euler":
            return ImplicitOneStep(weight=1.0, order=1)
        case "trapezoid":
            return ImplicitOneStep(weight=0.5, order=2)
        case "collocation":
            return Collocation(rtol=rtol, atol=atol)
    raise ValueError(f"Unknown solver {solver!r}. Choose one of: {', '.join(sorted(SOLVERS))}.")


def has_error_estimate(method: Method) -> bool:
    """Whether the method can choose its own steps."""
    return isinstance(method, RungeKutta) and method.tableau.e is not None
