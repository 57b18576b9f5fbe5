"""Killed runs go on, and end as if nothing had happened."""

import subprocess
import sys
from pathlib import Path

import pytest

from graphode.experiments.run_folder import RunFolder, read_metrics
from tests.experiments.karate_runs import Config, Silent, train_in


def interrupt_at(epoch: int):
    def at(done: int) -> None:
        if done == epoch:
            raise KeyboardInterrupt

    return Silent(at)


@pytest.mark.parametrize("chunk", [None, 2])
def test_an_interrupted_run_ends_with_the_same_bits(tmp_path, chunk):
    whole = train_in(tmp_path / "whole", chunk=chunk)
    with pytest.raises(KeyboardInterrupt):
        # The block that ends at 9 is in the metrics, but not in a checkpoint.
        train_in(tmp_path / "cut", interrupt_at(9), chunk=chunk)
    display = Silent()
    resumed = train_in(tmp_path / "cut", display, chunk=chunk)
    assert display.begun[0] == (0, 1 if chunk is None else 2, 6)
    assert resumed.selected == whole.selected
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")


@pytest.mark.parametrize("recorded", [False, True])
def test_a_run_interrupted_before_its_selection_ends_with_the_same_bits(tmp_path, recorded):
    options = {"select_from": 8, "capture": (lambda function, **_: function) if recorded else None}
    whole = train_in(tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        train_in(tmp_path / "cut", interrupt_at(6), **options)
    display = Silent()
    resumed = train_in(tmp_path / "cut", display, **options)
    assert display.begun == [(0, 1, 3)]
    assert resumed.selected == whole.selected
    for name, parameter in whole.ensemble.named_parameters():
        assert parameter.equal(resumed.ensemble.get_parameter(name)), name
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")


def test_a_run_interrupted_in_its_second_chunk_keeps_the_first(tmp_path):
    whole = train_in(tmp_path / "whole", chunk=2)
    seen = []

    def at(done: int) -> None:
        seen.append(done)
        if seen.count(6) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_in(tmp_path / "cut", Silent(at), chunk=2)
    display = Silent()
    # However much memory is free now, the run goes on as it began.
    resumed = train_in(tmp_path / "cut", display, chunk=3)
    assert display.begun == [(1, 2, 3)]
    assert resumed.selected == whole.selected
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")


def test_a_killed_process_goes_on_with_the_same_bits(tmp_path):
    script = Path(__file__).parent / "karate_runs.py"
    root = Path(__file__).parents[2]

    def train(*arguments: object) -> int:
        command = [sys.executable, "-W", "error", str(script), *map(str, arguments)]
        return subprocess.run(command, timeout=120, cwd=root).returncode

    assert train(tmp_path / "killed", 9) == -9
    assert (tmp_path / "killed" / "checkpoint.safetensors").exists()
    assert train(tmp_path / "killed") == 0
    assert train(tmp_path / "whole") == 0
    assert metrics(tmp_path / "killed") == metrics(tmp_path / "whole")
    facts = [RunFolder(tmp_path / name, Config()).checkpoint() for name in ("killed", "whole")]
    selected = [part.facts["selected"] for part in facts if part is not None]
    assert len(selected) == 2
    assert selected[0] == selected[1]


def test_members_of_a_run_in_chunks_are_those_of_a_run_at_once(tmp_path):
    at_once, in_chunks = (train_in(tmp_path / str(c), chunk=c) for c in (None, 1))
    assert at_once.selected["seed"] == in_chunks.selected["seed"] == [5, 6, 7]
    assert at_once.selected["epoch"] == in_chunks.selected["epoch"]
    for name, values in at_once.selected.items():
        assert in_chunks.selected[name] == pytest.approx(values, rel=1e-9)
    rows = read_metrics(tmp_path / "1")
    assert [row["chunk"] for row in rows] == [0] * 12 + [1] * 12 + [2] * 12


def test_what_was_trained_before_is_there_again(tmp_path):
    first = train_in(tmp_path)
    again = train_in(tmp_path)
    assert again.selected == first.selected
    assert again.seconds == first.seconds
    for (name, new), (_, old) in zip(
        again.ensemble.named_parameters(), first.ensemble.named_parameters(), strict=True
    ):
        assert new.equal(old), name


def metrics(path: Path) -> bytes:
    content = (path / "metrics.jsonl").read_bytes()
    assert content.count(b"\n") % 12 == 0
    return content
