"""Runs of a table as programs of their own: the same numbers, whoever makes them."""

import dataclasses
import json
import os
import signal
import time
from pathlib import Path

import pytest
from rich.console import Console

from graphode.experiments.run_folder import NOT_IDENTITY, RunFolder
from graphode.experiments.side_by_side import make_side_by_side
from graphode.experiments.table_1 import Table1
from graphode.experiments.table_2 import Table2
from graphode.experiments.table_2 import run as run_table_2
from graphode.experiments.table_3 import Table3
from graphode.experiments.tables import label_of
from tests.experiments.consoles import plain, said

PATIENCE = 300


@dataclasses.dataclass(frozen=True)
class Squared:
    number: int
    out: Path
    fresh: bool = dataclasses.field(default=False, metadata=NOT_IDENTITY)

    def resolved(self) -> "Squared":
        return self


def square(config: Squared, console: Console) -> None:
    console.print(f"squaring {config.number}")
    if config.number < 0:
        raise ValueError("It is negative.")
    if config.number == 13:
        raise KeyboardInterrupt
    if config.number == 14:
        try:
            (config.out.parent / "asleep").touch()
            time.sleep(PATIENCE)
        except KeyboardInterrupt:
            console.print("interrupted")
            raise
    if config.number == 666:
        while not (config.out.parent / "asleep").exists():
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    finish(config, config.number**2)


def finish(config: Squared, square: int) -> None:
    folder = RunFolder(config.out, config)
    folder.open()
    folder.finish({"square": square})


def test_a_table_is_the_same_however_many_runs_are_made_at_a_time(tmp_path, without_type_checks):
    changes = {
        "quick": True, "models": ("persistence", "gcgru"), "keeps": (0.5,), "studies": False,
        "epochs": 1, "device": "cpu", "preset": "tuned",
    }  # fmt: skip
    one = run_table_2(Table2(**changes, out=tmp_path / "one"), plain())
    console = plain()
    two = run_table_2(Table2(**changes, jobs=2, fresh=True, out=tmp_path / "two"), console)
    assert "2 runs, 2 at a time" in said(console)
    assert said(console).count(": done, about") == 2
    assert {row.label for row in two} == {"quick, run beside others"}
    assert [(row.model, row.metric) for row in one] == [(row.model, row.metric) for row in two]
    assert [row.mean for row in one] == pytest.approx([row.mean for row in two], rel=1e-9)
    assert "epoch 1/1" in (tmp_path / "two" / "gcgru-tuned-50.log").read_text()


def squares(folder: Path, *numbers: int, fresh: bool = False) -> list[tuple[str, Squared]]:
    return [(f"square of {k}", Squared(k, folder / str(k), fresh)) for k in numbers]


def test_what_is_finished_is_not_made_again_and_a_folder_is_made_once(tmp_path):
    finish(Squared(1, tmp_path / "1"), 0)
    console = plain()
    found = make_side_by_side(square, squares(tmp_path, 1, 2, 2), 4, console)
    assert "1 runs, 1 at a time" in said(console)
    assert [config.number for config in found] == [1, 2, 2]
    results = [json.loads((tmp_path / k / "result.json").read_text()) for k in "12"]
    assert [result["square"] for result in results] == [0, 4]
    assert "squaring 2" in (tmp_path / "2.log").read_text()


def test_two_runs_of_one_folder_are_refused(tmp_path):
    cells = [("one", Squared(1, tmp_path / "a")), ("two", Squared(2, tmp_path / "a"))]
    with pytest.raises(
        ValueError, match="one and two would be made at the same time in one folder"
    ):
        make_side_by_side(square, cells, 2, plain())


def test_a_folder_of_another_run_is_refused_before_any_begins(tmp_path):
    finish(Squared(5, tmp_path / "2"), 25)
    with pytest.raises(ValueError, match="number is 5 there, 2 here"):
        make_side_by_side(square, squares(tmp_path, 1, 2), 2, plain())
    assert not (tmp_path / "1.log").exists()


@pytest.mark.parametrize("number", [-1, 13])
def test_one_that_fails_or_is_stopped_keeps_others_from_beginning(tmp_path, number):
    console = plain()
    error = ValueError if number < 0 else KeyboardInterrupt
    with pytest.raises(error) as found:
        make_side_by_side(square, squares(tmp_path, number, 2, fresh=True), 1, console)
    words = str(found.value) + said(console)
    assert "the same command without --fresh goes on" in words
    assert not (tmp_path / "2.log").exists()
    log = (tmp_path / f"{number}.log").read_text()
    assert "squaring" in log
    if number < 0:
        assert "square of -1 failed: ValueError: It is negative." in words
        assert "Traceback" in log


def test_a_program_that_is_killed_is_named_and_the_others_are_stopped(tmp_path):
    """14 waits for 666 to begin, which kills itself; 14 must be interrupted, and say so."""
    began = time.perf_counter()
    with pytest.raises(
        ValueError, match="square of 666 failed: its program was ended from outside"
    ):
        make_side_by_side(square, squares(tmp_path, 14, 666), 2, plain())
    assert time.perf_counter() - began < PATIENCE
    assert "interrupted" in (tmp_path / "14.log").read_text()


def test_rows_tell_that_their_run_was_not_alone():
    assert label_of({}, quick=False) == ""
    assert label_of({"programs": 1, "label": "wide"}, quick=True) == "wide, quick"
    assert label_of({"programs": 6}, quick=False) == "run beside others"


@pytest.mark.parametrize("table", [Table1, Table2, Table3])
def test_no_job_is_refused(table, without_type_checks):
    with pytest.raises(ValueError, match="`jobs` must be 1 or more, but is 0"):
        table(jobs=0)
