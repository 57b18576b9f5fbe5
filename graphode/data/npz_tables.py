"""Tables of numbers from npz files, time × sensors, or one channel of several.

The array is the only one, or that named by `key`. Of an array `[time, sensors, channels]`, as in
the published PEMS08.npz (flow, occupancy, speed), `channel` is taken.
"""

import zipfile
import zlib
from pathlib import Path

import numpy as np


def npz_table(path: Path, key: str | None = None, channel: int | None = None) -> np.ndarray:
    """The numbers, `[time, sensors]`.

    Args:
        path: Of the npz.
        key: Which array, where it holds several.
        channel: From 0, where the array has several.
    """
    key, values = _array(path, key)
    if values.dtype.kind not in "biuf":
        raise ValueError(
            f"{key!r} of {path.name} must hold real numbers, but holds {values.dtype}. Save speeds "
            "as floats."
        )
    if 0 in values.shape:
        raise ValueError(
            f"{key!r} of {path.name} must hold speeds, a row for each time and a column for each "
            f"sensor, but is empty, of shape {list(values.shape)}."
        )
    if values.ndim == 3:
        values = values[:, :, _chosen(values.shape[2], channel, f"{key!r} of {path.name}")]
    elif channel is not None:
        raise ValueError(
            f"{key!r} of {path.name} must have shape [time, sensors, channels] for channel "
            f"{channel} to be taken, but has shape {list(values.shape)}. Leave out --channel."
        )
    if values.ndim != 2:
        raise ValueError(
            f"{key!r} of {path.name} must have shape [time, sensors] or [time, sensors, channels], "
            f"but has shape {list(values.shape)}."
        )
    return values.astype(np.float64)


def _array(path: Path, key: str | None) -> tuple[str, np.ndarray]:
    """The array that is meant, and its name."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise ValueError("it is a single array, an npy")
            names = loaded.files
            if key is None and len(names) == 1:
                (key,) = names
            if key is not None and key in names:
                return key, np.asarray(loaded[key])
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{path.name} is no npz of numbers, or is damaged: {error}. Copy it again, or save it "
            "anew with `np.savez`."
        ) from error
    raise ValueError(
        f"{path.name} holds the arrays {', '.join(names)}, but "
        f"{'no `key` says which' if key is None else f'not {key!r}'}. Name one with --key (in "
        "Python `key=`)."
    )


def _chosen(channels: int, channel: int | None, what: str) -> int:
    """The number of the channel."""
    if channel is None and channels == 1:
        return 0
    if channel is None:
        raise ValueError(
            f"{what} has {channels} channels, but nothing says which holds the speeds. Choose one "
            f"from 0 to {channels - 1} with --channel (in Python `channel=`); in PEMS08.npz 0 is "
            "flow, 1 occupancy, 2 speed."
        )
    if not 0 <= channel < channels:
        raise ValueError(f"{what} has channels 0 to {channels - 1}, but `channel` is {channel}.")
    return channel
