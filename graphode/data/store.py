"""Where a file of data is found, and how it is trusted.

    `root` → $GRAPHODE_DATA → the user's cache → the public source, into the cache

In a root a file is looked for in the data set's own folder (`root/cora/ind.cora.x`) and beside it
(`root/ind.cora.x`). The first that is there decides: a damaged file is refused, not passed over.
What is read is read once, compared by sha256, and only those bytes are parsed.
"""

import hashlib
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from graphode.data.catalogue import DataFile, DataSource
from graphode.data.download import download

DATA_VARIABLE = "GRAPHODE_DATA"


class DamagedFileError(ValueError):
    """A file whose bytes are not those of the data set."""


class MissingFileError(FileNotFoundError):
    """A file that is nowhere and cannot be had."""


def cache_folder() -> Path:
    """Where downloads are kept: `graphode` in $XDG_CACHE_HOME, or in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The specification tells to ignore relative paths.
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "graphode"


def places(root: Path | str | None = None) -> dict[str, Path]:
    """The folders that are searched, in their order, by name."""
    if root is not None and not Path(root).expanduser().is_dir():
        raise NotADirectoryError(
            f"There is no folder {root} to look for data in. Name one that is there with "
            f"--data-root (in Python `root`), or none: {DATA_VARIABLE} and {cache_folder()} are "
            "searched anyway."
        )
    found = {} if root is None else {"root": Path(root).expanduser()}
    if os.environ.get(DATA_VARIABLE):
        found[DATA_VARIABLE] = Path(os.environ[DATA_VARIABLE]).expanduser()
    return {**found, "cache": cache_folder()}


def find_file(
    source: DataSource, file: DataFile, root: Path | str | None = None
) -> tuple[str, Path] | None:
    """The name of the place where the file is, and its path; None if it is nowhere."""
    if source.embedded:
        return "embedded", Path(str(resources.files("graphode.data") / "embedded" / file.name))
    return search(source.name, (file.name,), root)


def search(
    data_set: str, names: Sequence[str], root: Path | str | None = None
) -> tuple[str, Path] | None:
    """The place and the path of the first of these files, in the data set's folder or beside it."""
    for place, folder in places(root).items():
        for name in names:
            for path in (folder / data_set / name, folder / name):
                if path.is_file():
                    return place, path
    return None


def file_sha256(path: Path | str) -> str:
    """Of the bytes of a file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def difference(content: bytes, file: DataFile) -> str:
    """How these bytes differ from those of `file`; empty if they are the same."""
    found = hashlib.sha256(content).hexdigest()
    if found == file.sha256:
        return ""
    size = (
        "" if len(content) == file.size else f", and it has {len(content)} bytes, not {file.size}"
    )
    return f"its sha256 must be {file.sha256}, but it is {found}{size}"


def check_bytes(content: bytes, source: DataSource, file: DataFile, path: Path) -> None:
    """Refuse bytes that are not those of `file`; `path` is where they were found."""
    if not (differs := difference(content, file)):
        return
    remedy = f"Delete it and run `graphode data fetch {source.name}` for a fresh copy."
    if source.embedded:
        remedy = "Install graphode again."
    elif not file.urls:
        remedy = f"Replace it by a fresh copy. {source.note}"
    raise DamagedFileError(
        f"{path} is damaged or not the file it should be: {differs}. It was not read further. "
        f"{remedy}"
    )


def read_file(
    source: DataSource,
    name: str,
    root: Path | str | None = None,
    allow_download: bool = True,
) -> bytes:
    """The bytes of a file of the data set, its checksum compared; downloaded if need be."""
    file = source.file(name)
    found = find_file(source, file, root)
    if found is not None:
        content = found[1].read_bytes()
        check_bytes(content, source, file, found[1])
        return content
    if not allow_download or not file.urls:
        raise MissingFileError(_nowhere(source, file, root))
    return fetch_file(source, file, root)


def fetch_file(source: DataSource, file: DataFile, root: Path | str | None = None) -> bytes:
    """Download the file into the cache, replacing what is there; returns its bytes.

    The file appears under its name only when it is complete and its checksum is right.
    """
    path = cache_folder() / source.name / file.name
    if not file.urls:
        raise MissingFileError(_nowhere(source, file, root))
    failures = []
    for url in file.urls:
        try:
            content = download(url, file.size)
        except OSError as failure:
            failures.append(f"{url}: {failure}")
            continue
        if differs := difference(content, file):
            failures.append(f"{url}: {differs}")
            continue
        _write(path, content)
        return content
    raise MissingFileError(
        f"{file.name} of {source.name} could not be downloaded ({'; '.join(failures)}). "
        f"Get {file.size} bytes with sha256 {file.sha256} on a machine with access and put them "
        f"at {path}, or at {source.name}/{file.name} in a folder named by --data-root or "
        f"{DATA_VARIABLE}."
    )


def _write(path: Path, content: bytes) -> None:
    """Write so that nobody ever sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _nowhere(source: DataSource, file: DataFile, root: Path | str | None) -> str:
    searched = ", ".join(f"{folder} ({place})" for place, folder in places(root).items())
    how = f"`graphode data fetch {source.name}` downloads it." if file.urls else source.note
    return (
        f"{file.name} of {source.name} is not here: looked in {searched}. Put it at "
        f"{source.name}/{file.name} in one of these folders; --data-root or {DATA_VARIABLE} names "
        f"yours. {how}"
    )
