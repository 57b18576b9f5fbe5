"""A run's folder: what was asked, what was measured, and where to go on.

    config.json              the settings, resolved
    metrics.jsonl            a line per epoch; what is measured is in those that were evaluated
    checkpoint.safetensors   all that is needed to go on; replaced as a whole, never edited
    arrays.npz               what the figures need beside the metrics, if anything
    result.json              written last: where it is, the run is finished
    lock                     while a program works there

Tables and figures are made from these files only. A checkpoint knows how long `metrics.jsonl` was
when it was written; what a killed run wrote after it is cut off before the run goes on.
"""

import contextlib
import dataclasses
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
from torch import Tensor

from graphode.experiments.folder_lock import FolderLock

CONFIG, METRICS, RESULT = "config.json", "metrics.jsonl", "result.json"
CHECKPOINT, ARRAYS = "checkpoint.safetensors", "arrays.npz"
LINE_BYTES = 600  # of metrics: the longest seen have 560

# Metadata of a field that does not change what a run computes: where it lies, how it is shown.
NOT_IDENTITY: Mapping[str, Any] = {"identity": False}


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where a run stood.

    Attributes:
        tensors: Parameters, moments, selections …, by name.
        facts: Numbers and strings beside them: epoch, chunk, seconds.
    """

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


class RunFolder:
    """The folder of one run.

    Args:
        path: Where it is, or will be.
        config: A frozen dataclass. Fields whose metadata is `NOT_IDENTITY` are not compared.
        any_device: Whether a finished run may have been made on another device.
    """

    def __init__(self, path: Path, config: Any, any_device: bool = False) -> None:
        self.path = Path(path)
        self.config = config
        self.any_device = any_device
        self.lock = FolderLock(self.path)

    def open(self, *, fresh: bool = False, space: int = 0, lines: int = 0, arrays: int = 0) -> None:
        """Claim the folder; all that can be refused is refused here, before the work.

        It is this program's until the run is finished, or `close`.

        Args:
            fresh: Throw away what an earlier run left.
            space: Bytes a checkpoint will need. The old one stays until the new one is whole, so
                there must be room for two.
            lines: Of metrics, when the run is finished.
            arrays: Bytes of what figures need, at most.
        """
        beside = arrays + LINE_BYTES * lines
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not self.lock.acquire():
                raise ValueError(
                    f"Another process is training in {self.path}: wait for it, stop it, or give "
                    f"another --out."
                )
            if fresh:
                for name in (RESULT, CHECKPOINT, METRICS, ARRAYS, CONFIG):
                    (self.path / name).unlink(missing_ok=True)
            else:
                self._check_config()
            written = _size(self.path / METRICS)
            _reserve(self.path / "space.tmp", 2 * space + max(0, beside - written) + 4096)
            if not self._has_begun():
                _write_whole(self.path / CONFIG, _json(settings_of(self.config)))
        except OSError as error:
            self.close()
            raise OSError(
                f"The run folder {self.path} cannot be used: {error.strerror or error}. It must be "
                f"a folder that can be written, with room for {_megabytes(2 * space)} of "
                f"checkpoints and {_megabytes(beside)} of metrics and arrays. Free some, or name "
                f"another place with --out."
            ) from error
        except ValueError:
            self.close()
            raise

    def close(self) -> None:
        """Let other programs work in the folder."""
        self.lock.release()

    @property
    def result(self) -> dict[str, Any] | None:
        """The result of a finished run, which says where it lies now; else None."""
        self._check_config()
        if not (self.path / RESULT).exists():
            return None
        result = read_json(self.path / RESULT)
        if isinstance(result.get("config"), dict):
            result["config"]["out"] = str(self.path)  # the folder may have been moved
        return result

    def checkpoint(self) -> Checkpoint | None:
        """The last checkpoint, if there is one; metrics written after it are cut off."""
        path = self.path / CHECKPOINT
        if not path.exists():
            (self.path / METRICS).unlink(missing_ok=True)
            return None
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                facts = json.loads(file.metadata()["facts"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"The checkpoint {path} cannot be read ({error}). Start anew with --fresh."
            ) from error
        length = facts.pop("metrics_bytes")
        with open(self.path / METRICS, "ab") as file:
            if file.tell() < length:
                raise ValueError(
                    f"{self.path / METRICS} is shorter than its checkpoint says ({file.tell()} "
                    f"bytes, not {length}): it was changed. Start anew with --fresh."
                )
            file.truncate(length)
        read_metrics(self.path)  # now, and not when all is trained
        return Checkpoint(tensors, facts)

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add lines to the metrics."""
        with self._writing(), open(self.path / METRICS, "a") as file:
            file.writelines(json.dumps(_finite(row)) + "\n" for row in rows)

    def save(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Replace the checkpoint, after the metrics it speaks of have reached the disk."""
        with self._writing(), open(self.path / METRICS, "ab") as file:
            os.fsync(file.fileno())
            facts = {**facts, "metrics_bytes": file.tell()}
        held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        data = safetensors.torch.save(held, {"facts": json.dumps(facts)})
        with self._writing():
            _write_whole(self.path / CHECKPOINT, data)

    def save_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep what figures need."""
        partial = self.path / "arrays.tmp.npz"
        with self._writing():
            np.savez_compressed(partial, allow_pickle=False, **arrays)
            partial.replace(self.path / ARRAYS)

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result: the run is finished."""
        with self._writing():
            _write_whole(self.path / RESULT, _json(result))
        self.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Errors of the disk say where, and what becomes of the run."""
        try:
            yield
        except OSError as error:
            raise OSError(
                f"The run folder {self.path} cannot be written: {error.strerror or error}. When it "
                f"can, the same command without --fresh goes on from the last checkpoint."
            ) from error

    def _has_begun(self) -> bool:
        """Whether there is anything to lose: what was refused, or stopped at once, left nothing."""
        return (self.path / RESULT).exists() or (self.path / CHECKPOINT).exists()

    def _check_config(self) -> None:
        """Refuse a folder that holds another run."""
        path = self.path / CONFIG
        if not self._has_begun():
            return
        if not path.exists():
            raise ValueError(
                f"{self.path} holds a run without its {CONFIG}, so it cannot be told whose it is. "
                f"Name another folder with --out, or start anew with --fresh."
            )
        fields = dataclasses.fields(self.config)
        # A setting that is younger than the folder had there what is now its default.
        young = {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
        held, asked = {**_plain(young), **read_json(path)}, settings_of(self.config)
        free = {f.name for f in fields if not f.metadata.get("identity", True)}
        if self.any_device and (self.path / RESULT).exists():
            free.add("device")
        names = [n for n in {**held, **asked} if n not in free and held.get(n) != asked.get(n)]
        if names:
            differences = "; ".join(
                "the files have changed since"
                if n == "files"
                else f"{n} is {_shown(held, n)} there, {_shown(asked, n)} here"
                for n in names
            )
            raise ValueError(
                f"The folder {self.path} holds a run with other settings: {differences}. Name "
                f"another folder with --out, or replace that run with --fresh."
            )


def settings_of(config: Any) -> dict[str, Any]:
    """A dataclass as JSON holds it, and the checksums of the files that it names, if it has any."""
    files = getattr(config, "files", {})
    return _plain(_finite(dataclasses.asdict(config) | ({"files": files} if files else {})))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file."""
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(
            f"{path} is not valid JSON ({error}). It was changed by hand; start anew with --fresh."
        ) from error
    if not isinstance(content, dict):
        raise ValueError(
            f"{path} must hold a JSON object, but holds {content!r:.40}. It was changed by hand; "
            f"start anew with --fresh."
        )
    return content


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a run folder's metrics, first to last."""
    path = Path(path) / METRICS
    with open(path) as file:
        try:
            return [json.loads(line) for line in file]
        except ValueError as error:
            raise ValueError(
                f"{path} has a line that is no JSON ({error}). It was changed by hand, or damaged; "
                f"start anew with --fresh."
            ) from error


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(settings, default=str))


def _shown(settings: Mapping[str, Any], name: str) -> str:
    return repr(settings[name]) if name in settings else "not set"


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(_finite(content), indent=2, default=str) + "\n").encode()


def _finite(content: Any) -> Any:
    """NaN and infinities as null: JSON has neither."""
    if isinstance(content, Mapping):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _write_whole(path: Path, data: bytes) -> None:
    """All of it or nothing, whenever the machine stops."""
    partial = path.with_name(path.name + ".tmp")
    with open(partial, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    if hasattr(os, "O_DIRECTORY"):  # so that the new name also lasts; not on Windows
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _reserve(path: Path, size: int) -> None:
    """Ask the file system for `size` bytes and give them back."""
    try:
        with open(path, "wb") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                for start in range(0, size, 1 << 20):
                    file.write(bytes(min(1 << 20, size - start)))
            file.flush()
            os.fsync(file.fileno())
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _megabytes(size: int) -> str:
    return f"{math.ceil(size / 1e6)} MB"
