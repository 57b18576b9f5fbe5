"""Members in training: an epoch of all of them, by programs that never ask the host.

An epoch has two halves. `Trainer.teach` is masks keyed by (seed of the member, update), training
loss, gradients and Adam; `Trainer.evaluate` is measures and selection. Both work in place on device
tensors, so that each can be captured as a CUDA graph; what they find goes into a block of rows that
the host reads every `log_every` epochs. Where an epoch has many batches, `Trainer.learn`, one
update, is what is captured. Every epoch is taught; one that cannot be selected is evaluated only at
the end of a block, which the host decides (`Training.evaluates`). A GPU evaluates an epoch while it
computes the gradients of the next, both from the same parameters (`Trainer.evaluate_and_teach`):
the one fills what the other leaves idle.

Of a member whose solve fails the loss is NaN, and the others go on: members never meet. Who reads
the rows sets it aside (`Trainer.set_aside`).
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from graphode.experiments.member_adam import MemberAdam
from graphode.experiments.objective import BatchedObjective, Objective
from graphode.experiments.selection import Selection
from graphode.flows import Flow, SolveError, Stats, Status, record_stats, stochastic

COSTS = ("evaluations", "backward_evaluations", "evaluations_without_masks")
TAUGHT = ("train_loss", *COSTS[:2])  # what is known of an epoch that is not evaluated
Penalty = float | Tensor | Mapping[str, float | Tensor]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """How to train.

    Args:
        epochs: How many.
        lr: Adam's learning rate, for all members or each `[members]`.
        weight_decay: L2 penalty on all parameters, for all members or each; or such penalties by
            part of a name, of which the first that a parameter's name contains counts for it.
        schedule: The learning rate stays ("constant"), or falls to 0 as a half cosine does, once
            ("cosine") or again and again ("restarts": Loshchilov, Hutter, 2017, "SGDR").
        period: Epochs between two restarts.
        select_from: First epoch that can be selected. Earlier ones are evaluated only where one
            is the last of `log_every`, or of all.
        patience: Epochs without improvement after which a member stops; None for never.
        log_every: Epochs between two looks at the device.
        checkpoint_seconds: Between two checkpoints, at least.
        keep_selected: Whether each member's parameters at its selected epoch are kept.
    """

    epochs: int
    lr: float | Tensor
    weight_decay: Penalty = 0.0
    schedule: Literal["constant", "cosine", "restarts"] = "constant"
    period: int = 10
    select_from: int = 0
    patience: int | None = None
    log_every: int = 10
    checkpoint_seconds: float = 30.0
    keep_selected: bool = False

    def evaluates(self, epoch: int) -> bool:
        """Whether an epoch is evaluated, and not only taught."""
        ends_block = (epoch + 1) % self.log_every == 0 or epoch + 1 == self.epochs
        return ends_block or epoch >= self.select_from


class Trainer:
    """Members in training: parameters, moments, the epoch, and the best epoch so far of each.

    Args:
        ensemble: `[members, …]` from shared arguments; `ensemble.seeds` are the members' seeds.
        objective: What they are trained for.
        training: How.

    Attributes:
        costs: Evaluations per solve, `[members, 3]`, where solves cannot be counted as they
            happen, in a captured program; None where they are counted.
    """

    def __init__(self, ensemble: nn.Module, objective: Objective, training: Training) -> None:
        self.ensemble, self.objective, self.training = ensemble, objective, training
        self.costs: Tensor | None = None
        names, self.parameters = zip(*ensemble.named_parameters(), strict=True)
        device, members = self.parameters[0].device, self.parameters[0].shape[0]
        self.seeds = torch.as_tensor(ensemble.seeds, device=device)
        self.epoch = torch.zeros((), dtype=torch.int64, device=device)
        decays = [_decay(name, training.weight_decay) for name in names]
        self.optimizer = MemberAdam(self.parameters, training.lr, decays)
        self.metrics = ("train_loss", *objective.measures, *COSTS)
        self.selection = Selection(
            members, objective.measures, training.select_from, training.patience, device
        )
        shape = (training.log_every, members, len(self.metrics))
        self.block = torch.zeros(shape, dtype=torch.float64, device=device)
        self.num_batches = objective.num_batches if isinstance(objective, BatchedObjective) else 1
        self.train_loss = torch.zeros(members, dtype=torch.float64, device=device)
        self.learn: Callable[[], None] = self.update
        self.attempts = 0
        # Whether solves of teaching, and of evaluating, ended for want of attempts.
        self.wants_more = torch.zeros(2, dtype=torch.bool, device=device)
        for part in ensemble.modules():
            if isinstance(part, Flow):
                part.options = dataclasses.replace(part.options, on_failure="status")
        self.beside = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.awaited: torch.cuda.Stream | None = None
        self.kept = [p.detach().clone() for p in self.parameters if training.keep_selected]
        if hasattr(objective, "follow"):
            objective.follow(self.epoch)  # pyright: ignore[reportAttributeAccessIssue]

    def step(self) -> None:
        """One epoch of every member, evaluated."""
        self.teach()
        self.evaluate()

    def teach(self) -> None:
        """The first half of an epoch: its updates, and what their solves cost."""
        self.train_loss.zero_()
        with record_stats() as solves:
            if isinstance(self.objective, BatchedObjective):
                epoch = int(self.epoch)
                for batch in range(self.num_batches):
                    self.objective.turn(epoch, batch)
                    self.learn()
            else:
                self.learn()

        costs = self._taught_costs(solves) if self.costs is None else self.costs[:, :2]
        # NaN until the epoch is evaluated: the numbers of an earlier one would look like its own.
        unknown = costs.new_full((len(costs), len(self.objective.measures)), torch.nan)
        row = torch.cat([self.train_loss[:, None], unknown, costs, unknown[:, :1]], -1)
        self.block.index_copy_(0, self._place(self.epoch), row[None])
        self.epoch += 1

    def evaluate(self) -> None:
        """The second half, of the epoch that was taught last: measures and selection."""
        epoch = self.epoch - 1
        self.ensemble.eval()
        with torch.no_grad(), record_stats() as solves:
            measured = self.objective.measure(self.ensemble)
        loss = self._of_ended(measured["validation_loss"], solves, self.wants_more[1])
        measured = {**measured, "validation_loss": loss}
        better = self.selection.update(epoch, loss, measured)
        for kept, parameter in zip(self.kept, self.parameters, strict=False):
            chosen = better.reshape(-1, *(1,) * (kept.ndim - 1))
            kept.copy_(torch.where(chosen, parameter.detach(), kept))

        cost = self._per_member(_evaluations(solves)) if self.costs is None else self.costs[:, 2]
        values = [measured[name].to(cost) for name in self.objective.measures]
        place = self._place(epoch)
        self.block[..., 1 : -len(COSTS)].index_copy_(0, place, torch.stack(values, -1)[None])
        self.block[..., -1].index_copy_(0, place, cost[None])

    def evaluate_and_teach(self) -> None:
        """The second half of an epoch beside the first half of the next.

        On a GPU at the same time, but for what changes parameters, which waits for both.
        """
        if self.beside is None:
            self.evaluate()
        else:
            self.beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.beside):
                self.evaluate()
            self.awaited = self.beside
        self.teach()

    def run(
        self,
        epochs: int,
        teach: Callable[[], None] | None = None,
        evaluate: Callable[[], None] | None = None,
        both: Callable[[], None] | None = None,
    ) -> None:
        """So many epochs, each evaluated where `Training.evaluates` says so.

        Args:
            epochs: How many.
            teach: A program that repeats `teach`; by default the method itself.
            evaluate: Likewise.
            both: Likewise, of `evaluate_and_teach`; by default one comes after the other.
        """
        first = int(self.epoch)  # read once: on a GPU the host would wait for every epoch
        teach, evaluate = teach or self.teach, evaluate or self.evaluate
        is_due = False
        for epoch in range(first, first + epochs):
            if is_due and both is not None:
                both()
            else:
                if is_due:
                    evaluate()
                teach()
            is_due = self.training.evaluates(epoch)
        if is_due:
            evaluate()

    def update(self) -> None:
        """One update of every member."""
        self.ensemble.train()  # here, as a recording may be made of updates alone
        differentiate = getattr(self.objective, "loss_and_gradients", self._differentiated)
        loss, gradients = differentiate(self.ensemble)
        if self.awaited is not None:  # an evaluation there still reads the parameters
            torch.cuda.current_stream().wait_stream(self.awaited)
            self.awaited = None
        self.optimizer.step(gradients, self._pace())
        self.train_loss.add_(loss, alpha=1 / self.num_batches)

    def _differentiated(self, ensemble: nn.Module) -> tuple[Tensor, Sequence[Tensor]]:
        key = stochastic(self.seeds, self.optimizer.count.to(torch.int64))
        with key, record_stats() as solves:
            loss = self.objective.loss(ensemble)
            gradients = torch.autograd.grad(loss.sum(), self.parameters, materialize_grads=True)
        return self._of_ended(loss.detach(), solves, self.wants_more[0]), gradients

    def _of_ended(self, loss: Tensor, solves: list[Stats], wants_more: Tensor) -> Tensor:
        """The loss of the members whose solves all reached their ends, NaN of the others."""
        for stats in solves:
            if stats.status is not None:
                failed = stats.status > Status.EVENT
                failed = failed.flatten(1).any(1) if failed.ndim > 1 else failed
                loss = torch.where(failed, torch.nan, loss)
                wants_more.logical_or_((stats.status == Status.MAX_STEPS).any())
        return loss

    def diverged(self, first: int, count: int) -> Tensor:
        """In which of the last `count` epochs each member had its first loss that is no number.

        `[members]` on the host, −1 for those that had none.
        """
        lost = ~self.read(first, count)[..., 0].isfinite()
        return torch.where(lost.any(0), first + lost.int().argmax(0), -1)

    @torch.no_grad()
    def set_aside(self, members: list[int], healthy: int) -> None:
        """Train members no further: they do what a healthy one does."""
        adam = self.optimizer
        rates = (rate for rate in (*adam.lr, *adam.weight_decay) if isinstance(rate, Tensor))
        for tensor in (*self.parameters, *adam.means, *adam.squares, *rates):
            tensor[members] = tensor[healthy].clone()

    @torch.no_grad()
    def forget(self, members: list[int]) -> None:
        """Let nobody take the last parameters of these members for theirs."""
        for parameter in self.parameters:
            parameter[members] = torch.nan

    def why_it_failed(self) -> str:
        """In words, once all members have; a solve that fails again says where."""
        if not all(bool(parameter.isfinite().all()) for parameter in self.parameters):
            return "parameters became NaN."
        flows = [part for part in self.ensemble.modules() if isinstance(part, Flow)]
        try:
            for flow in flows:
                flow.options = dataclasses.replace(flow.options, on_failure="raise")
            with torch.no_grad(), stochastic(self.seeds, self.optimizer.count.to(torch.int64)):
                self.objective.loss(self.ensemble.train())
        except SolveError as error:
            return f"a solve failed. {error}"
        return "the loss became NaN."

    def count(self) -> Tensor:
        """Evaluations per solve at the present parameters, `[members, 3]`."""
        self.ensemble.train()
        with record_stats() as solves, stochastic(self.seeds, self.epoch):
            loss = self.objective.loss(self.ensemble).sum()
            torch.autograd.grad(loss, self.parameters, allow_unused=True)
        self.ensemble.eval()
        with torch.no_grad(), record_stats() as solves_without_masks:
            self.objective.measure(self.ensemble)
        tried = [s.accepted + s.rejected for s in (*solves, *solves_without_masks)]
        self.attempts = max([1, *[int(count.max()) for count in tried]])
        without_masks = self._per_member(_evaluations(solves_without_masks))
        return torch.cat([self._taught_costs(solves), without_masks[:, None]], -1)

    def state(self) -> dict[str, Tensor]:
        """The tensors that change, by name; to go on, copy values into them."""
        state = parameters_of(self.ensemble)
        state |= {f"adam.{name}": tensor for name, tensor in self.optimizer.state().items()}
        state |= {f"selection.{name}": tensor for name, tensor in self.selection.state().items()}
        state |= {f"kept.{k}": tensor for k, tensor in enumerate(self.kept)}
        return {**state, "epoch": self.epoch}

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what `state` held."""
        state = self.state()
        if any(
            name not in tensors or tensors[name].shape != of.shape for name, of in state.items()
        ):
            raise ValueError(
                "The run's checkpoint holds other parameters than its model has: it was written by "
                "another version. Start anew with --fresh."
            )
        for name, tensor in state.items():
            tensor.copy_(tensors[name])

    def read(self, first: int, count: int) -> Tensor:
        """The rows of the last `count` epochs, `[count, members, metrics]`, on the host.

        What is measured is NaN in those that were not evaluated.
        """
        start = first % len(self.block)
        return self.block[start : start + count].cpu()

    def _pace(self) -> float | Tensor:
        """What the learning rate is multiplied by."""
        if self.training.schedule == "constant":
            return 1.0
        restarts = self.training.schedule == "restarts"
        span = self.training.period if restarts else self.training.epochs
        progress = self.optimizer.count / self.num_batches % span  # in epochs
        return (1 + torch.cos(progress * (math.pi / span))) / 2

    def _place(self, epoch: Tensor) -> Tensor:
        """The row of an epoch in the block, `[1]`."""
        return (epoch % len(self.block)).reshape(1)

    def _taught_costs(self, solves: list[Stats]) -> Tensor:
        """Evaluations per solve of an epoch's updates, forward and backward, `[members, 2]`."""
        backward = sum(stats.backward_evaluations for stats in solves)
        columns = [self._per_member(cost) for cost in (_evaluations(solves), backward)]
        return torch.stack(columns, -1)

    def _per_member(self, cost: Tensor | float) -> Tensor:
        return self.block.new_zeros(len(self.seeds)) + cost


def _decay(name: str, weight_decay: Penalty) -> float | Tensor:
    """The penalty on the parameter of this name."""
    if not isinstance(weight_decay, Mapping):
        return weight_decay
    return next((decay for part, decay in weight_decay.items() if part in name), 0.0)


def _evaluations(solves: list[Stats]) -> Tensor | float:
    """Mean over solves and over what else a member's batch has, for each member."""
    counts = (stats.evaluations.double() for stats in solves)
    return sum(c.flatten(1).mean(1) if c.ndim > 1 else c for c in counts) / max(len(solves), 1)


def parameters_of(ensemble: nn.Module) -> dict[str, Tensor]:
    """The parameters by their names in a checkpoint."""
    return {f"parameters.{name}": parameter for name, parameter in ensemble.named_parameters()}
