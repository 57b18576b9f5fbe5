"""Exact gradients in O(√steps) memory: keep some states, take the steps between them again.

The forward pass records nothing but the step sizes and about √steps states. The backward pass goes
through the pieces between them from last to first: it takes the recorded steps again under
autograd, hands the gradient back through the piece, and lets it go. Since the same steps are
taken, the gradient is the one of `backprop`, bit for bit but for the order of sums.

Griewank (1992), "Achieving logarithmic growth of temporal and spatial complexity in reverse
automatic differentiation"; Chen et al. (2016), "Training deep nets with sublinear memory cost".
"""

import dataclasses
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphode.flows.evaluation import Evaluation
from graphode.flows.fixed import Grid, ListedGrid, march
from graphode.flows.gradients import refuse_second_derivatives
from graphode.flows.integrate import Result, Settings, fixed_grid, integrate
from graphode.flows.outputs import Outputs
from graphode.flows.problem import Problem
from graphode.flows.recorder import Recorder, Snapshot


class CheckpointedSolve:
    """One solve whose steps can be taken again."""

    def __init__(
        self, problem: Problem, settings: Settings, f: Evaluation, tensors: list[Tensor]
    ) -> None:
        self.problem, self.f, self.tensors = problem, f, tensors
        self.settings = dataclasses.replace(settings, keep_steps=False)
        self.recorder = Recorder()
        self.result: Result | None = None

    def forward(self) -> Tensor:
        """Solve, keeping snapshots; returns the states at the output times."""
        num_steps = self.settings.num_steps
        if num_steps is not None:
            # The number of steps is known: snapshots at equal distances.
            self.recorder.stride = math.isqrt(num_steps - 1) + 1
        self.result = integrate(self.problem, self.settings, self.f, recorder=self.recorder)
        assert self.result.states is not None
        return self.result.states

    def backward(
        self, gradient: Tensor, times: Tensor
    ) -> tuple[Tensor, Tensor | None, list[Tensor | None]]:
        """Gradients of y0, times and the field's tensors, given that of the states."""
        assert self.result is not None
        calls = self.f.calls
        to_times: Tensor | None = None
        to_tensors: list[Tensor | None] = [None] * len(self.tensors)
        after: list[Tensor | None] = []
        stop = self._num_steps()
        snapshots = self.recorder.snapshots or {0: self._at_rest()}
        for start in sorted(snapshots, reverse=True):
            snapshot = snapshots[start]
            after, piece_times, piece_tensors = self._piece(
                range(start, stop), snapshot, gradient, after, times
            )
            to_times = _add(to_times, piece_times)
            to_tensors = [_add(a, b) for a, b in zip(to_tensors, piece_tensors, strict=True)]
            stop = start
        to_y0 = gradient[0] if after[0] is None else after[0].to(gradient.dtype) + gradient[0]
        self.result.stats.backward_evaluations += self.f.calls - calls
        return to_y0, to_times, to_tensors

    def _at_rest(self) -> Snapshot:
        """The start of a solve without a single step: nobody moved."""
        first_output = np.ones(self.problem.host.shape[1], dtype=np.int64)
        return Snapshot(self.problem.y0.to(self.problem.layout.working_dtype), (), first_output)

    def _num_steps(self) -> int:
        return self.settings.num_steps or len(self.recorder.sizes)

    def _grid(self, times: Tensor) -> Grid:
        if self.settings.num_steps is not None:
            return fixed_grid(self.problem, times, self.settings)
        start = self.problem.per_sample(0, times)
        recorder = self.recorder
        return ListedGrid(start, recorder.offsets, recorder.sizes, recorder.ends, recorder.numbers)

    def _piece(
        self,
        span: range,
        snapshot: Snapshot,
        gradient: Tensor,
        after: list[Tensor | None],
        times: Tensor,
    ) -> tuple[list[Tensor | None], Tensor | None, list[Tensor | None]]:
        """Pull a gradient of (state, carry) back through the steps `span`."""
        with torch.enable_grad():
            y = snapshot.y.detach().requires_grad_()
            carry = None
            if span.start > 0:
                carry = tuple(part.detach().requires_grad_() for part in snapshot.carry)
            moments = times.detach().requires_grad_(times.requires_grad)
            outputs = Outputs(moments, self.problem.host, y, self.problem.layout.batch_shape)
            outputs.found.clear()
            outputs.next = snapshot.next_output
            if span.start == 0:
                outputs.rest(self.f, y)
            end, end_carry, _ = march(
                self.settings.method,
                self.f,
                y,
                self._grid(moments),
                carry=carry,
                span=span,
                outputs=outputs,
            )
            if span.stop == self._num_steps():
                # Outputs never reached, such as those of a zero span, are the final state.
                for which in range(int(outputs.next.min()), len(gradient)):
                    unreached = (which >= outputs.next) & ~outputs.resting
                    outputs.found.append((which, end, unreached))
            values = [end, *end_carry]
            pulled = [*after, *[None] * (len(values) - len(after))]
            for which, state, inside in outputs.found:
                mask = outputs.mask(self.f, inside)
                values.append(state)
                pulled.append(torch.where(mask, gradient[which].to(state.dtype), 0.0))
            sources = [y, *(carry or ()), *self.tensors]
            if moments.requires_grad:
                sources.append(moments)
            pairs = [
                (value, pull)
                for value, pull in zip(values, pulled, strict=True)
                if pull is not None and value.requires_grad
            ]
            # Graphs above a tensor the field closes over are needed again by the next piece.
            gradients = torch.autograd.grad(
                [value for value, _ in pairs],
                sources,
                [pull for _, pull in pairs],
                allow_unused=True,
                retain_graph=True,
            )
        first = 1 + len(carry or ())
        to_times = gradients[-1] if moments.requires_grad else None
        return list(gradients[:first]), to_times, list(gradients[first : first + len(self.tensors)])


def _add(total: Tensor | None, term: Tensor | None) -> Tensor | None:
    if total is None or term is None:
        return term if total is None else total
    return total + term


class _Checkpointed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, solve: CheckpointedSolve, y0: Tensor, times: Tensor, *tensors: Tensor):
        del y0
        ctx.solve = solve
        ctx.save_for_backward(times, *tensors)
        return solve.forward()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        refuse_second_derivatives("a solve with checkpoints", "gradient='backprop'")
        times, *_ = ctx.saved_tensors
        with ctx.solve.f.as_remembered():
            to_y0, to_times, to_tensors = ctx.solve.backward(grad_outputs[0], times)
        return None, to_y0, to_times, *to_tensors


def solve_with_checkpoints(
    problem: Problem,
    settings: Settings,
    f: Evaluation,
    inputs: list[Tensor],
    tensors: list[Tensor],
) -> Result:
    """Solve `problem`; gradients reach y0, times and `inputs`.

    Args:
        inputs: Tensors of the outside that want a gradient.
        tensors: The same as the field sees them.
    """
    solve = CheckpointedSolve(problem, settings, f, tensors)
    states = _Checkpointed.apply(solve, problem.y0, problem.times, *inputs)
    assert solve.result is not None
    return dataclasses.replace(solve.result, states=states, final=states[-1])
