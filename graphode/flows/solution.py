"""What a solve gives back: states, cost, status, and the solution at any time between."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphode.flows.layout import Layout


class Status(IntEnum):
    """How a sample's solve ended."""

    SUCCESS = 0
    EVENT = 1
    MAX_STEPS = 2
    STEP_UNDERFLOW = 3
    NON_FINITE = 4
    NOT_CONVERGED = 5


class SolveError(RuntimeError):
    """A solve that could not reach its end; the message says where, and what to try."""


@dataclass
class Stats:
    """The cost of a solve.

    Attributes:
        evaluations: Field evaluations each sample needed, as if solved alone; of an implicit solver
            or collocation those of the sample that needed most in each step.
        accepted: Steps taken, per sample.
        rejected: Steps tried and refused, per sample.
        field_calls: Calls of the field, each on the whole batch.
        backward_evaluations: Calls of the field during the backward pass (recomputation or
            adjoint); filled in when backward has run.
        status: How each sample ended, a `Status`; None where it was not asked.
    """

    evaluations: Int[Tensor, "*batch"]
    accepted: Int[Tensor, "*batch"]
    rejected: Int[Tensor, "*batch"]
    field_calls: int
    backward_evaluations: int = 0
    status: Int[Tensor, "*batch"] | None = None


@dataclass(frozen=True)
class EventRecord:
    """Where one event function crossed zero.

    Attributes:
        counts: Number of crossings, per sample.
        times: Their times, first to last, padded with NaN; differentiable.
        states: The states there, padded with NaN; differentiable.
    """

    counts: Int[Tensor, "*batch"]
    times: Float[Tensor, "count *batch"]
    states: Float[Tensor, "count *state"]


@dataclass
class Solution:
    """The solution of one initial value problem, or of a batch of them.

    Attributes:
        times: The output times, `[time]` or `[*batch, time]`, as given.
        states: The states there, time first.
        stats: What it cost.
        status: A `Status` per sample.
        end_times: Where each sample stopped: its last output time, or its terminal event.
        events: One record per event function.
    """

    times: Float[Tensor, "... time"]
    states: Float[Tensor, "time *state"]
    stats: Stats
    status: Int[Tensor, "*batch"]
    end_times: Float[Tensor, "*batch"]
    events: tuple[EventRecord, ...] = ()
    dense: Callable[[float | Tensor], Tensor] | None = field(default=None, repr=False)

    @property
    def succeeded(self) -> bool:
        """Whether every sample reached its last time or a terminal event."""
        return bool((self.status <= Status.EVENT).all())

    def at(self, t: float | Tensor) -> Tensor:
        """The state at time `t` between the first and last output times.

        Args:
            t: A float or 0-d tensor, or one time per sample `[*batch]`.

        Returns:
            A tensor of the state's shape, with gradients as `states` has them.
        """
        assert self.dense is not None
        return self.dense(t)


def describe_failure(
    status: Tensor, times: Tensor, steps: Tensor, y: Tensor, dy: Tensor, layout: Layout
) -> str:
    """Which sample failed, when, at what step size, its largest component, and what to try.

    Args:
        status: How each sample ended.
        times: When.
        steps: Its step size then.
        y: Its last state that was finite.
        dy: The field there.
        layout: Which part of `y` is whose.
    """
    failed = (status > Status.EVENT).reshape(-1)
    index = int(failed.nonzero()[0])
    code = Status(int(status.reshape(-1)[index]))
    system = layout.sample(y.detach(), index)
    magnitude = system.abs().reshape(-1)
    component = int(torch.where(magnitude.isnan(), torch.inf, magnitude).argmax())
    position = tuple(int(i) for i in torch.unravel_index(torch.tensor(component), system.shape))
    who = f"sample {index} (of {failed.numel()}, {int(failed.sum())} failed)"
    where = (
        f"at t = {times.reshape(-1)[index].item():.6g} with step size "
        f"{steps.reshape(-1)[index].abs().item():.3g}; largest component "
        f"{system.reshape(-1)[component].item():.4g} at {position}"
    )
    subject = who if layout.batch_dims else "the solve stopped"
    values = _non_finite(layout.sample(dy, index), code)
    if values:
        return f"The field returned {values}: {subject} {where}. {_FIELD_REMEDY}"
    return f"{_WHAT[code]}: {subject} {where}. {_REMEDY[code]}"


def _non_finite(dy: Tensor, code: Status) -> str:
    """What a field has returned that no solver can use; nothing where the solver is to blame.

    A state that has blown up makes an infinite velocity of its own.
    """
    if bool(dy.isnan().any()):
        return "NaN"
    return "infinity" if code == Status.STEP_UNDERFLOW and bool(dy.isinf().any()) else ""


_FIELD_REMEDY = (
    "Look for a square root or logarithm of a negative number, a division by 0, and parameters or "
    "inputs of the field that are not finite."
)
_WHAT = {
    Status.MAX_STEPS: "Too many steps",
    Status.STEP_UNDERFLOW: "Step size underflow",
    Status.NON_FINITE: "Non-finite state",
    Status.NOT_CONVERGED: "The implicit equation was not solved",
}
_REMEDY = {
    Status.MAX_STEPS: (
        "Raise `max_steps`, loosen `rtol` and `atol`, or, if the field is stiff, use "
        "solver='trapezoid' or 'implicit_euler'."
    ),
    Status.STEP_UNDERFLOW: (
        "The solution may blow up or jump there: end before that time, bound the field, lower "
        "`min_step`, or locate the jump with a terminal event."
    ),
    Status.NON_FINITE: (
        "The solution blew up or the step is too long: take more steps (`num_steps`), end "
        "earlier, or bound the field."
    ),
    Status.NOT_CONVERGED: (
        "Take more steps (`num_steps`); for solver='collocation' looser `rtol` and `atol` help too."
    ),
}
