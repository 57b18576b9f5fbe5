"""The runs of a table side by side, each a program of its own.

One small model does not fill a GPU: six programs that share an H200 by NVIDIA's MPS do one and a
half times the work of one. On a CPU each has its share of the cores. A run leaves a folder behind
however it was made, so that the table is afterwards made from the folders, as ever.
"""

import dataclasses
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console

from graphode.ensembles import share_memory
from graphode.experiments.progress import clock
from graphode.experiments.run_folder import RESULT
from graphode.experiments.sitting import say

Config = TypeVar("Config", bound=Any)


def make_side_by_side(
    run: Callable[[Any, Console], object],
    cells: Sequence[tuple[str, Config]],
    jobs: int,
    console: Console,
) -> list[Config]:
    """Make the runs that are not finished; what each says goes to a file beside its folder.

    Args:
        run: Called as run(settings, console); a function of a module, so that others can find it.
        cells: Names, and settings with `out` and `fresh`.
        jobs: How many at a time.
        console: Where to say what is done, and how long the rest will take.

    Returns:
        The settings, of runs that are finished: called again they are read.
    """
    due = [cell for cell in cells if cell[1].fresh or not (Path(cell[1].out) / RESULT).is_file()]
    if not due:
        return [_finished(config) for _, config in cells]
    jobs = min(jobs, len(due))
    say(console, f"{len(due)} runs, {jobs} at a time; each writes to FOLDER.log.")
    # A fresh interpreter each: one that was forked could not use a GPU that its parent has used.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _begin, (jobs, torch.get_default_dtype())) as pool:
        futures = {
            pool.submit(_make, run, config, _log(config)): (name, config) for name, config in due
        }
        try:
            _follow(futures, console)
        except BaseException as error:
            pool.shutdown(cancel_futures=True)
            if isinstance(error, KeyboardInterrupt):
                say(console, "Stopped: the same command goes on from the runs' last checkpoints.")
            raise
    return [_finished(config) for _, config in cells]


def check_jobs(jobs: int) -> None:
    """Refuse none."""
    if jobs < 1:
        raise ValueError(f"`jobs` must be 1 or more, but is {jobs}. It is how many run at a time.")


def _follow(futures: dict[Future[bool], tuple[str, Any]], console: Console) -> None:
    """Say which run is done as it is; raise where one failed or was stopped."""
    began = time.perf_counter()
    for done, future in enumerate(as_completed(futures), 1):
        name, config = futures[future]
        if (error := future.exception()) is not None:
            # As the command line shows errors of one run.
            raise ValueError(
                f"{name} failed: {error} What it said is in {_log(config)}; the others that had "
                "begun are finished or go on from their checkpoints by the same command."
            ) from error
        if not future.result():
            raise KeyboardInterrupt
        seconds = time.perf_counter() - began
        left = seconds / done * (len(futures) - done)
        say(console, f"[{done}/{len(futures)}] {name}: done, about {clock(left)} left")


def _begin(jobs: int, dtype: torch.dtype) -> None:
    """In a program of its own: take a share of the cores and of the memory."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // jobs))
    torch.set_default_dtype(dtype)
    share_memory(jobs)


def _make(run: Callable[[Any, Console], object], config: Any, log: Path) -> bool:
    """There, a run: whether it came to its end, and was not stopped."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        try:
            run(config, Console(file=file, width=120))
        except KeyboardInterrupt:  # the parent has it too, and tells
            return False
    return True


def _log(config: Any) -> Path:
    folder = Path(config.out)
    return folder.with_name(f"{folder.name}.log")


def _finished(config: Config) -> Config:
    return dataclasses.replace(config, fresh=False)
