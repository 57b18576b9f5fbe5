"""The continuous adjoint: gradients by a second equation, solved backwards, in O(1) memory.

With a(t) = dL/dy(t), between two output times

    dy/dt = f,   da/dt = − aᵀ ∂f/∂y,   dg/dt = − aᵀ ∂f/∂θ,

integrated from the later to the earlier; at an output time a gains the gradient of the state
there, and y is reset to the stored one. The samples of a batch go backwards together in the
variable s in [0, 1], t = t_late + s (t_early − t_late), each over its own span, because the
parameters' integral g is one for all of them; the error norm is the largest over the samples.

Chen et al. (2018), "Neural Ordinary Differential Equations"; Kidger, Chen, Lyons (2021), "Hey,
that's not an ODE"; Gholami, Keutzer, Biros (2019), "ANODE" (why to reset).
"""

import dataclasses
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphode.flows.evaluation import Evaluation
from graphode.flows.gradients import Adjoint, CheckpointAdjoint, refuse_second_derivatives
from graphode.flows.host import on_host
from graphode.flows.integrate import Result, Settings, integrate
from graphode.flows.layout import Layout
from graphode.flows.problem import Problem


@dataclasses.dataclass(frozen=True)
class AdjointLayout(Layout):
    """A flat state (y, a, g) with the error norm of the adjoint."""

    inner: Layout
    seminorm: bool

    def rms(self, x: Tensor) -> Tensor:
        """The largest over the samples of the norm of (y, a), and that of g unless left out."""
        lead, size = x.shape[:-1], self.inner.shape.numel()
        state, adjoint, rest = x.split([size, size, x.shape[-1] - 2 * size], -1)
        both = torch.stack([state, adjoint]).reshape(2, *lead, *self.inner.shape)
        norms = self.inner.rms(both).square().mean(0).sqrt()
        largest = norms.flatten(len(lead)).amax(-1) if self.inner.batch_dims else norms
        if self.seminorm or not rest.numel():
            return largest
        own = torch.linalg.vector_norm(rest, dim=-1) / math.sqrt(rest.shape[-1])
        return torch.maximum(largest, own)


class AdjointSolve:
    """One solve whose gradient is solved for."""

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        f: Evaluation,
        gradient: Adjoint,
        tensors: list[Tensor],
    ) -> None:
        self.problem, self.f, self.gradient, self.tensors = problem, f, gradient, tensors
        self.settings = dataclasses.replace(settings, keep_steps=False)
        self.result: Result | None = None

    def forward(self) -> Tensor:
        """Solve; returns the states at the output times."""
        self.result = integrate(self.problem, self.settings, self.f)
        assert self.result.states is not None
        return self.result.states

    def backward(
        self, gradient: Tensor, states: Tensor, times: Tensor
    ) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        """Gradients of y0, times and the field's tensors, given that of the states."""
        assert self.result is not None
        layout, f, tensors = self.problem.layout, self.f, self.tensors
        calls = f.calls
        working = layout.working_dtype
        to_times = torch.zeros_like(times) if times.requires_grad else None
        adjoint = torch.zeros(layout.shape, dtype=working, device=layout.device)
        total = torch.zeros(
            sum(tensor.numel() for tensor in tensors), dtype=working, device=layout.device
        )
        for index in range(len(states) - 1, 0, -1):
            state, pull = states[index].to(working), gradient[index].to(working)
            adjoint = adjoint + pull
            if to_times is not None:
                self._to_time(to_times, index, state, pull)
            adjoint, total = self._back(index, state, adjoint, total)
        if to_times is not None:
            self._to_time(to_times, 0, states[0].to(working), -adjoint)
        parts = total.split([tensor.numel() for tensor in tensors])
        to_tensors = [
            part.reshape(tensor.shape).to(tensor.dtype)
            for part, tensor in zip(parts, tensors, strict=True)
        ]
        self.result.stats.backward_evaluations += f.calls - calls
        return (adjoint + gradient[0]).to(layout.dtype), to_times, to_tensors

    def _to_time(self, to_times: Tensor, index: int, state: Tensor, pull: Tensor) -> None:
        """Moving an output time by dt moves its state by f dt; moving the start, by −f dt."""
        slope = self.f(self.problem.per_sample(index).detach(), state)
        rate = self.problem.layout.dot(pull, slope).to(to_times.dtype)
        to_times[..., index] += rate if to_times.ndim > 1 else rate.sum()

    def _back(
        self, index: int, state: Tensor, adjoint: Tensor, total: Tensor
    ) -> tuple[Tensor, Tensor]:
        """From output time `index` to the one before it."""
        layout = self.problem.layout
        start = self.problem.per_sample(index).detach()
        span = self.problem.per_sample(index - 1).detach() - start
        size = layout.shape.numel()

        def augmented(s: Tensor, flat: Tensor) -> Tensor:
            y, a = (part.reshape(layout.shape) for part in flat[: 2 * size].split(size))
            further = torch.is_grad_enabled() and flat.requires_grad
            with torch.enable_grad():
                y = y if further else y.detach().requires_grad_()
                slope = self.f(start + s.to(span.dtype) * span, y)
                pulled = torch.autograd.grad(
                    slope,
                    [y, *self.tensors],
                    -layout.scale(span) * a,
                    retain_graph=True,
                    create_graph=further,
                    allow_unused=True,
                    materialize_grads=True,
                )
            parts = [layout.scale(span) * slope, *pulled]
            rates = torch.cat([part.reshape(-1).to(flat.dtype) for part in parts])
            return rates if further else rates.detach()

        flat = torch.cat([state.reshape(-1), adjoint.reshape(-1), total])
        end = self._solve_flat(augmented, flat, index)
        _, new_adjoint, new_total = end.split([size, size, total.numel()])
        return new_adjoint.reshape(layout.shape), new_total

    def _solve_flat(self, augmented: Any, flat: Tensor, index: int) -> Tensor:
        inner, settings = self.problem.layout, self.settings
        layout = AdjointLayout(
            flat.shape, 0, flat.dtype, flat.device, inner, self.gradient.seminorm
        )
        interval = torch.tensor([0.0, 1.0], dtype=layout.time_dtype, device=layout.device)
        host = np.array([[0.0], [1.0]])
        problem = Problem(augmented, (), flat, interval, host, layout)
        num_steps = settings.num_steps
        if num_steps is not None:
            times = self.problem.host
            gap, span = np.abs(times[index] - times[index - 1]), np.abs(times[-1] - times[0])
            part = np.divide(gap, span, out=np.zeros_like(gap), where=span > 0)
            own_steps = num_steps if settings.own_steps is None else settings.own_steps
            num_steps = max(1, math.ceil(float((own_steps * part).max()) * (1 - 1e-12)))
        settings = dataclasses.replace(
            settings,
            num_steps=num_steps,
            own_steps=None,
            rtol=self.gradient.rtol or settings.rtol,
            atol=self.gradient.atol or settings.atol,
            raise_on_failure=True,
        )
        f = Evaluation(augmented, (), layout)
        return integrate(problem, settings, f, only_final=True).final


class _AdjointFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, solve: AdjointSolve, y0: Tensor, times: Tensor, *tensors: Tensor):
        del y0
        states = solve.forward()
        ctx.solve = solve
        ctx.save_for_backward(states, times, *tensors)
        return states

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        refuse_second_derivatives("a solve with an adjoint", "gradient='backprop'")
        states, times, *_ = ctx.saved_tensors
        with ctx.solve.f.as_remembered():
            to_y0, to_times, to_tensors = ctx.solve.backward(grad_outputs[0], states, times)
        return None, to_y0, to_times, *to_tensors


def solve_with_adjoint(
    problem: Problem,
    settings: Settings,
    f: Evaluation,
    gradient: Adjoint,
    inputs: list[Tensor],
    tensors: list[Tensor],
) -> Result:
    """Solve `problem`; gradients reach y0, times and `inputs`.

    Args:
        inputs: Tensors of the outside that want a gradient.
        tensors: The same as the field sees them.
    """
    keep = None
    if isinstance(gradient, CheckpointAdjoint):
        problem, keep = _with_resets(problem, gradient.resets)
    solve = AdjointSolve(problem, settings, f, gradient, tensors)
    states = _AdjointFunction.apply(solve, problem.y0, problem.times, *inputs)
    assert solve.result is not None
    assert isinstance(states, Tensor)
    states = states if keep is None else states[keep]
    return dataclasses.replace(solve.result, states=states, final=states[-1])


def _with_resets(problem: Problem, resets: int) -> tuple[Problem, Tensor]:
    """`problem` with further output times, and where the original ones are among them."""
    intervals = len(problem.host) - 1
    pieces = 1 + math.ceil(resets / intervals)
    weights = torch.arange(pieces, dtype=problem.times.dtype, device=problem.times.device) / pieces
    early, late = problem.times[..., :-1, None], problem.times[..., 1:, None]
    # Output times keep their gradient; the points between them are mere book-keeping.
    inner = early.detach() + weights[1:] * (late - early).detach()
    times = torch.cat([early, inner], -1).flatten(-2)
    times = torch.cat([times, problem.times[..., -1:]], -1)
    host = on_host(times.to(torch.float64)).reshape(-1, times.shape[-1]).T
    host = np.broadcast_to(host, (len(host), problem.host.shape[1]))
    keep = torch.arange(0, times.shape[-1], pieces, device=times.device)
    return dataclasses.replace(problem, times=times, host=host), keep
