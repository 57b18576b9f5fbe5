"""A run's folder refuses what is not its own, before the work."""

import dataclasses
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphode.experiments import folder_lock, run_folder
from graphode.experiments.run_folder import NOT_IDENTITY, RunFolder, read_metrics
from graphode.experiments.sitting import sit

LOCKS = pytest.mark.skipif(os.name == "nt", reason="has no locks of this kind")


@dataclasses.dataclass(frozen=True)
class Config:
    lr: float = 0.1
    widths: tuple[int, ...] = (4, 4)
    shown: str = dataclasses.field(default="plain", metadata=NOT_IDENTITY)


def opened(path, config=None, **options) -> RunFolder:
    folder = RunFolder(path, config or Config())
    folder.open(**options)
    return folder


def test_the_same_settings_open_the_folder_again(tmp_path):
    opened(tmp_path / "deep" / "run")
    opened(tmp_path / "deep" / "run", Config(shown="live"))
    assert json.loads((tmp_path / "deep" / "run" / "config.json").read_text())["widths"] == [4, 4]


def begun(path, config=None) -> RunFolder:
    folder = opened(path, config)
    folder.save({"a": torch.ones(2)}, {"epoch": 1})
    return folder


def test_other_settings_are_refused_by_name(tmp_path):
    begun(tmp_path)
    text = r"lr is 0.1 there, 0.2 here; widths is \[4, 4\] there, \[8\] here.*--out.*--fresh"
    with pytest.raises(ValueError, match=text):
        opened(tmp_path, Config(lr=0.2, widths=(8,)))
    with pytest.raises(ValueError, match=r"lr is 0\.1 there"):
        _ = RunFolder(tmp_path, Config(lr=0.2)).result


def test_a_run_that_has_left_nothing_claims_no_folder(tmp_path):
    opened(tmp_path)
    begun(tmp_path, Config(lr=0.2))
    assert json.loads((tmp_path / "config.json").read_text())["lr"] == 0.2
    with pytest.raises(ValueError, match=r"lr is 0\.2 there, 0\.1 here"):
        opened(tmp_path)


def test_settings_that_are_no_numbers_are_the_same_again(tmp_path):
    begun(tmp_path, Config(lr=float("nan")))
    opened(tmp_path, Config(lr=float("nan")))


def test_a_finished_run_can_be_read_from_another_device(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class OnDevice(Config):
        device: str = "cpu"

    folder = opened(tmp_path, OnDevice(device="cuda"))
    folder.save({"a": torch.ones(2)}, {"epoch": 1})
    folder.close()
    with pytest.raises(ValueError, match="device is 'cuda' there, 'cpu' here"):
        RunFolder(tmp_path, OnDevice(), any_device=True).open()  # it would go on here
    folder.finish({"done": True})
    assert RunFolder(tmp_path, OnDevice(), any_device=True).result == {"done": True}
    with pytest.raises(ValueError, match="device is 'cuda' there, 'cpu' here"):
        _ = RunFolder(tmp_path, OnDevice()).result


def test_a_damaged_line_of_the_metrics_is_refused_before_training_goes_on(tmp_path):
    folder = opened(tmp_path)
    folder.append([{"epoch": 0}, {"epoch": 1}])
    folder.save({"a": torch.ones(2)}, {"epoch": 2})
    text = (tmp_path / "metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text(text.replace('"epoch": 0', '"ep?ch"; 0'))
    with pytest.raises(ValueError, match=r"metrics\.jsonl has a line that is no JSON.*--fresh"):
        folder.checkpoint()


def test_a_setting_younger_than_the_folder_had_its_default_there(tmp_path):
    begun(tmp_path)
    held = json.loads((tmp_path / "config.json").read_text())
    del held["widths"]
    (tmp_path / "config.json").write_text(json.dumps(held))
    opened(tmp_path)
    with pytest.raises(ValueError, match=r"widths is \[4, 4\] there, \[8\] here"):
        opened(tmp_path, Config(widths=(8,)))


def test_a_result_says_where_it_lies_when_its_folder_was_moved(tmp_path):
    folder = opened(tmp_path / "here")
    folder.finish({"config": {"out": str(tmp_path / "here"), "lr": 0.1}})
    (tmp_path / "here").rename(tmp_path / "there")
    moved = RunFolder(tmp_path / "there", Config()).result
    assert moved == {"config": {"out": str(tmp_path / "there"), "lr": 0.1}}


def test_fresh_removes_the_run_and_nothing_else(tmp_path):
    folder = opened(tmp_path)
    folder.append([{"epoch": 0}])
    folder.save({"a": torch.ones(2)}, {"epoch": 1})
    folder.finish({"done": True})
    (tmp_path / "notes.txt").write_text("mine")
    opened(tmp_path, Config(lr=0.2), fresh=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "notes.txt"]


def test_a_checkpoint_comes_back_and_cuts_later_metrics_off(tmp_path):
    folder = opened(tmp_path)
    folder.append([{"epoch": 0, "loss": 0.1}])
    tensors = {"a": torch.rand(3), "n": torch.tensor(7), "stopped": torch.tensor([True, False])}
    folder.save(tensors, {"epoch": 1})
    folder.append([{"epoch": 1, "loss": float("nan")}])
    assert read_metrics(tmp_path)[1]["loss"] is None
    checkpoint = folder.checkpoint()
    assert checkpoint is not None
    assert checkpoint.facts == {"epoch": 1}
    assert all(checkpoint.tensors[name].equal(value) for name, value in tensors.items())
    assert [row["epoch"] for row in read_metrics(tmp_path)] == [0]


def test_without_a_checkpoint_metrics_begin_anew(tmp_path):
    folder = opened(tmp_path)
    folder.append([{"epoch": 0}])
    assert folder.checkpoint() is None
    assert not (tmp_path / "metrics.jsonl").exists()


def test_a_write_that_fails_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    folder = opened(tmp_path)
    folder.save({"a": torch.ones(2)}, {"epoch": 1})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_folder.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        folder.save({"a": torch.zeros(2)}, {"epoch": 2})
    monkeypatch.undo()
    checkpoint = folder.checkpoint()
    assert checkpoint is not None
    assert checkpoint.facts["epoch"] == 1
    assert checkpoint.tensors["a"].equal(torch.ones(2))


def test_a_damaged_checkpoint_is_named(tmp_path):
    folder = opened(tmp_path)
    (tmp_path / "checkpoint.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0garbage!")
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors cannot be read.*--fresh"):
        folder.checkpoint()


def test_metrics_shorter_than_the_checkpoint_says_are_refused(tmp_path):
    folder = opened(tmp_path)
    folder.append([{"epoch": 0}])
    folder.save({"a": torch.ones(1)}, {})
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"shorter than its checkpoint says \(0 bytes"):
        folder.checkpoint()


def test_a_full_disk_is_known_at_the_start(tmp_path, monkeypatch):
    def full(descriptor: int, start: int, size: int) -> None:
        assert size >= 2 * 5_000_000
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match=r"No space left.*room for 10 MB of checkpoints.*--out"):
        opened(tmp_path / "run", space=5_000_000)
    assert list((tmp_path / "run").iterdir()) == []


def test_room_for_metrics_and_arrays_is_asked_for_too(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(os, "posix_fallocate", lambda *args: asked.append(args[2]), raising=False)
    opened(tmp_path, lines=1000, arrays=50_000)
    (tmp_path / "metrics.jsonl").write_bytes(bytes(100_000))
    opened(tmp_path, lines=1000, arrays=50_000)
    assert asked[0] >= 1000 * 500 + 50_000
    assert asked[0] - asked[1] == 100_000  # which lie there already


def test_a_disk_that_fills_in_mid_run_is_named(tmp_path, monkeypatch):
    folder = opened(tmp_path)
    text = f"The run folder {tmp_path} cannot be written: No space left on device.*without --fresh"

    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_folder.json, "dumps", full)
    with pytest.raises(OSError, match=text):
        folder.append([{"epoch": 0}])
    monkeypatch.undo()
    monkeypatch.setattr(run_folder.np, "savez_compressed", full)
    with pytest.raises(OSError, match=text):
        folder.save_arrays({})
    monkeypatch.setattr(run_folder.os, "fsync", full)
    for write in (lambda: folder.save({"a": torch.ones(1)}, {}), lambda: folder.finish({})):
        with pytest.raises(OSError, match=text):
            write()


def test_without_reserving_the_disk_is_tried_by_writing(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    opened(tmp_path, space=3_000_000)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_file_in_the_place_of_the_folder_is_refused_at_the_start(tmp_path):
    (tmp_path / "run").write_text("not a folder")
    with pytest.raises(OSError, match=r"cannot be used: .*It must be a folder that can be written"):
        opened(tmp_path / "run")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused_at_the_start(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(OSError, match="cannot be used: Permission denied"):
            opened(tmp_path)
    finally:
        tmp_path.chmod(0o700)


def test_a_read_only_place_is_refused_even_for_root(tmp_path, monkeypatch):
    def refuse(self, *args, **kwargs):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(run_folder.Path, "mkdir", refuse)
    with pytest.raises(OSError, match="cannot be used: Read-only file system"):
        opened(tmp_path / "run")


def test_a_run_whose_settings_are_lost_is_refused(tmp_path):
    opened(tmp_path).finish({})
    (tmp_path / "config.json").unlink()
    with pytest.raises(ValueError, match=r"without its config\.json"):
        opened(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="not valid JSON"):
        opened(tmp_path)
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"must hold a JSON object, but holds \[1\].*--fresh"):
        opened(tmp_path)


@LOCKS
def test_a_second_is_refused_and_removes_nothing(tmp_path):
    folder = opened(tmp_path)
    folder.append([{"epoch": 0}])
    text = f"Another process is training in {tmp_path}: wait for it, stop it, or .*--out"
    for fresh in (False, True):
        with pytest.raises(ValueError, match=text):
            opened(tmp_path, fresh=fresh)
    assert read_metrics(tmp_path) == [{"epoch": 0}]
    folder.close()
    assert opened(tmp_path).checkpoint() is None


@LOCKS
def test_another_process_is_refused_until_the_first_is_killed(tmp_path):
    program = (
        "import sys, time; from graphode.experiments.folder_lock import FolderLock;"
        "from pathlib import Path;"
        "lock = FolderLock(Path(sys.argv[1]));"
        "print(lock.acquire(), flush=True); time.sleep(300)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "True\n"
        with pytest.raises(ValueError, match="Another process"):
            opened(tmp_path)
        first.kill()
    opened(tmp_path)


@LOCKS
def test_a_run_that_ends_lets_the_next_begin(tmp_path):
    first = opened(tmp_path)
    first.finish({})
    second = opened(tmp_path)
    assert (tmp_path / "lock").exists()
    first.close()  # which has nothing left to give back
    assert (tmp_path / "lock").exists()
    second.close()
    assert not (tmp_path / "lock").exists()


@LOCKS
def test_a_result_is_read_while_another_process_works_there(tmp_path):
    opened(tmp_path).finish({"done": True})
    again = opened(tmp_path)
    assert RunFolder(tmp_path, Config()).result == {"done": True}
    again.close()


@LOCKS
def test_a_file_system_without_locks_is_used_as_it_is(tmp_path, monkeypatch):
    def refuse(handle: int, what: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(folder_lock.fcntl, "flock", refuse)
    first, second = opened(tmp_path), opened(tmp_path)
    first.finish({})
    second.finish({})
    assert not (tmp_path / "lock").exists()


@dataclasses.dataclass(frozen=True)
class Sitting:
    out: Path
    fresh: bool = dataclasses.field(default=False, metadata=NOT_IDENTITY)

    def resolved(self) -> "Sitting":
        return self


@pytest.mark.parametrize("content", ["{}", "[]", '{"loss": {}, "config": 1}'])
def test_a_result_that_lacks_what_a_result_has_is_named(tmp_path, content):
    def never(*args: object) -> dict[str, float]:
        raise AssertionError("it is finished")

    (tmp_path / "config.json").write_text(json.dumps({"out": str(tmp_path)}))
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(ValueError, match=r"result\.json .*changed by hand.*--fresh"):
        sit(Sitting(tmp_path), None, never, lambda result: f"{result['loss']['mean']:.3f}")


def test_a_run_that_fails_lets_the_next_begin(tmp_path):
    def fails(config: Sitting, folder: RunFolder, console: object) -> dict[str, float]:
        folder.open()
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            sit(Sitting(tmp_path), None, fails, str)
