"""The runs of a table side by side, each a program of its own.

One small model does not fill a GPU: six programs that share an H200 by NVIDIA's MPS do one and a
half times the work of one. On a CPU each has its share of the cores. A program takes some three
seconds to begin, so that this is for runs of minutes. A run leaves a folder behind however it was
made, and the table is afterwards made from the folders, as ever.
"""

import dataclasses
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console

from graphode.ensembles import share_memory
from graphode.experiments.checks import check_count
from graphode.experiments.heap import keep_freed_memory
from graphode.experiments.progress import clock
from graphode.experiments.run_folder import RunFolder
from graphode.experiments.sitting import say

Config = TypeVar("Config", bound=Any)
Run = Callable[[Any, Console], object]
FAILED, STOPPED = 1, 130  # exit codes; 130 is how shells report Ctrl-C


def make_side_by_side(
    run: Run, cells: Sequence[tuple[str, Config]], jobs: int, console: Console
) -> list[Config]:
    """Make the runs that are not finished; what each says goes to a file beside its folder.

    Where one fails, or Ctrl-C comes, the others stop at their next checkpoints.

    Args:
        run: Called as run(settings, console); a function of a module, so that others can find it.
        cells: Names, and settings with `resolved()`, `out` and `fresh`.
        jobs: How many at a time.
        console: Where to say what is done, and how long the rest will take.

    Returns:
        The settings, of runs that are finished: called again they are read.
    """
    due = [cell for cell in _by_folder(cells) if _is_due(cell[1])]
    if due:
        jobs = min(jobs, len(due))
        say(console, f"{len(due)} runs, {jobs} at a time; each writes to FOLDER.log.")
        _Crew(run, due, jobs, console).work()
    return [dataclasses.replace(config, fresh=False) for _, config in cells]


def check_jobs(jobs: int) -> None:
    """Refuse none."""
    check_count("jobs", jobs, "It is how many run at a time")


class _Crew:
    """Programs at work: never more than `jobs` have begun and not ended."""

    def __init__(self, run: Run, due: list[tuple[str, Any]], jobs: int, console: Console) -> None:
        self.run, self.jobs, self.console = run, jobs, console
        self.waiting, self.count = due[::-1], len(due)
        again = " without --fresh" if any(config.fresh for _, config in due) else ""
        self.how_to_go_on = f"the same command{again} goes on from their last checkpoints"
        self.working: dict[int, tuple[BaseProcess, str, Any]] = {}
        self.began = time.perf_counter()
        # A fresh interpreter each: one that was forked could not use a GPU its parent has used.
        self.context = multiprocessing.get_context("spawn")

    def work(self) -> None:
        try:
            while self.waiting or self.working:
                while self.waiting and len(self.working) < self.jobs:
                    self._begin(*self.waiting.pop())
                for sentinel in wait(list(self.working)):
                    assert isinstance(sentinel, int)
                    self._end(*self.working.pop(sentinel))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                say(self.console, f"Stopping the runs that have begun: {self.how_to_go_on}.")
            self._stop()
            raise

    def _begin(self, name: str, config: Any) -> None:
        threads = max(1, torch.get_num_threads() // self.jobs)
        arguments = (self.run, config, _log(config), self.jobs, threads, torch.get_default_dtype())
        program = self.context.Process(target=_made, args=arguments, daemon=True)
        program.start()
        self.working[program.sentinel] = (program, name, config)

    def _end(self, program: BaseProcess, name: str, config: Any) -> None:
        """Say that a run is done; raise where it failed or was stopped."""
        program.join()
        log = _log(config)
        if program.exitcode == STOPPED:
            raise KeyboardInterrupt
        if program.exitcode:
            reason = "its program was ended from outside, perhaps for want of memory."
            if program.exitcode == FAILED:
                reason = log.read_text().strip().splitlines()[-1]
            # Of a kind that the command line shows as it shows errors of one run.
            raise ValueError(
                f"{name} failed: {reason}\nWhat it said is in {log}. Of the others, which are "
                f"stopped, {self.how_to_go_on}."
            )
        done = self.count - len(self.waiting) - len(self.working)
        left = (time.perf_counter() - self.began) / done * (self.count - done)
        say(self.console, f"[{done}/{self.count}] {name}: done, about {clock(left)} left")

    def _stop(self) -> None:
        for program, *_ in self.working.values():
            if program.pid is not None and program.is_alive():
                os.kill(program.pid, signal.SIGINT)
        for program, *_ in self.working.values():
            program.join()


def _made(run: Run, config: Any, log: Path, jobs: int, threads: int, dtype: torch.dtype) -> None:
    """In a program of its own, the run; its exit code tells how it ended."""
    # Ctrl-C of a terminal goes to the parent alone, which sends it on once.
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    share_memory(jobs)
    keep_freed_memory()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        try:
            run(config, Console(file=file, width=120))
        except KeyboardInterrupt:
            sys.exit(STOPPED)
        except Exception:
            traceback.print_exc(file=file)
            sys.exit(FAILED)


def _end_with_parent() -> None:
    """A parent that was killed could start the same run again, in the same folder."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(STOPPED)


def _by_folder(cells: Sequence[tuple[str, Config]]) -> list[tuple[str, Config]]:
    """Each folder's run once, under its first name."""
    found: dict[Path, tuple[str, Config]] = {}
    for name, config in cells:
        first, held = found.setdefault(Path(config.out), (name, config))
        if held != config:
            raise ValueError(
                f"{first} and {name} would be made at the same time in one folder, {config.out}, "
                "with other settings. Ask for one of them, or leave out --jobs."
            )
    return list(found.values())


def _is_due(config: Any) -> bool:
    """Whether a run is to be made; a folder that holds another one is refused before any begins."""
    config = config.resolved()
    return config.fresh or RunFolder(config.out, config).result is None


def _log(config: Any) -> Path:
    folder = Path(config.out)
    return folder.with_name(f"{folder.name}.log")
