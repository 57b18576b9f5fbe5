"""PEMS08 and PeMSD7(M), and the generator's traffic, by name.

Both are loop detectors on Californian freeways, one speed in five minutes (Caltrans PeMS). PEMS08:
170 detectors, 62 days from Friday 1 July 2016, distances along roads between neighbours (Guo et
al., 2019). PeMSD7(M), the paper's: 228 detectors on the 44 weekdays of May and June 2012, distances
between all pairs in metres (Yu et al., 2018).

PeMSD7(M)'s speeds have no public address that keeps its bytes. Whoever has them puts `V_228.csv`,
`PeMSD7_V_228.csv` or the zip that holds it into the folder `pemsd7m` of a data root.
"""

import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphode.data.catalogue import find_source
from graphode.data.csv_tables import read_numbers
from graphode.data.distance_tables import distances_from_list, distances_from_matrix
from graphode.data.store import DamagedFileError, MissingFileError, places, read_file, search
from graphode.data.traffic_series import (
    STEPS_PER_DAY,
    TrafficSeries,
    regular_times,
    split_by_days,
    split_by_fractions,
)
from graphode.data.traffic_simulation import simulated_traffic

TRAFFIC_SETS = ("pems08", "pemsd7m", "simulated")
PEMSD7M_SHAPE = (44 * STEPS_PER_DAY, 228)
PEMSD7M_SPEEDS = ("V_228.csv", "PeMSD7_V_228.csv", "vel.csv", "PeMS-M.zip", "PeMSD7_Full.zip")
PEMSD7M_DISTANCES = ("PeMSD7_W_228.csv", "W_228.csv")
# The speeds are known in these encodings; the last by Git's name for its bytes.
KNOWN_SHA256 = {
    "9731c9874a05b5ca88f482062760efb0cbf38816721969a072907fe381d6adb7",
    "e66bad7b811d8f47f453362edc7455398aa683b5733525cca641429c42015437",
}
KNOWN_GIT_BLOBS = {"2a76cb181e8e917c5d9b85891d26614981024fab"}
LARGEST_MEMBER = 200_000_000  # bytes; the speeds have 72 million


def load_traffic(
    name: str, root: Path | str | None = None, allow_download: bool = True, seed: int = 0
) -> TrafficSeries:
    """A recording by its name, one of `TRAFFIC_SETS`.

    Args:
        root: A folder with the data; without it, GRAPHODE_DATA, the cache and the public source.
        seed: Of the simulated traffic.
    """
    if name == "pems08":
        return pems08(root, allow_download)
    if name == "pemsd7m":
        return pemsd7m(root, allow_download=allow_download)
    if name == "simulated":
        return simulated_traffic(seed=seed)
    raise ValueError(f"Unknown data set {name!r}. Choose one of: {', '.join(TRAFFIC_SETS)}.")


def pems08(root: Path | str | None = None, allow_download: bool = True) -> TrafficSeries:
    """170 detectors, 17 844 steps, miles per hour; roads as listed, infinite otherwise."""
    source = find_source("pems08")
    content = read_file(source, "pems08_speed.npz", root, allow_download)
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        tenths = arrays["speed_x10"]
    roads = read_file(source, "distance.csv", root, allow_download)
    return TrafficSeries(
        name="pems08",
        speeds=torch.from_numpy(tenths / 10.0).to(torch.get_default_dtype()),
        times=regular_times(len(tenths)),
        split=split_by_fractions(len(tenths)),
        distances=distances_from_list(roads, "distance.csv", tenths.shape[1]),
        checksums={file.name: file.sha256 for file in source.files},
    )


def pemsd7m(
    root: Path | str | None = None, verify: bool = True, allow_download: bool = True
) -> TrafficSeries:
    """228 detectors, 44 weekdays, miles per hour; the distance between any two in metres.

    Args:
        verify: Whether the speeds must be one of the encodings whose checksum is known. Otherwise
            any table of numbers of the right shape is taken.
    """
    found = search("pemsd7m", PEMSD7M_SPEEDS, root)
    if found is None:
        folders = ", ".join(str(folder / "pemsd7m") for folder in places(root).values())
        raise MissingFileError(
            f"The speeds of PeMSD7(M) are not here. Put {' or '.join(PEMSD7M_SPEEDS)} into one of "
            f"{folders}: they have no public address that is known to keep its bytes."
        )
    path = found[1]
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    is_known = _is_known(content)
    if path.suffix == ".zip" and (is_known or not verify):
        content = _unzipped(content, path)
        is_known = is_known or _is_known(content)
    if verify and not is_known:
        raise DamagedFileError(
            f"{path} is not known: its sha256 must be one of {', '.join(sorted(KNOWN_SHA256))} (or "
            f"its Git blob {', '.join(KNOWN_GIT_BLOBS)}), but it is {digest}. It was not read "
            "further. Replace it, or use `pemsd7m(verify=False)` if you trust it."
        )
    speeds = read_numbers(content, path.name)
    if speeds.shape != PEMSD7M_SHAPE:
        raise ValueError(
            f"{path.name} must hold {' × '.join(map(str, PEMSD7M_SHAPE))} speeds, but holds "
            f"{' × '.join(map(str, speeds.shape))}."
        )
    distances, checksums = _pemsd7m_distances(root, verify, allow_download)
    # Weekdays from Tuesday 1 May 2012: four, then weeks of five.
    days = torch.arange(len(speeds)) // STEPS_PER_DAY
    weeks = (days + 1) // 5
    within = torch.arange(len(speeds)) % STEPS_PER_DAY
    return TrafficSeries(
        name="pemsd7m",
        speeds=torch.from_numpy(speeds).to(torch.get_default_dtype()),
        times=((days + 2 * weeks) * STEPS_PER_DAY + within).double(),
        distances=distances,
        split=split_by_days(len(speeds)),
        stretches=weeks,
        checksums={path.name: digest, **checksums} if is_known else checksums,
    )


def _pemsd7m_distances(
    root: Path | str | None, verify: bool, allow_download: bool
) -> tuple[Tensor, dict[str, str]]:
    source = find_source("pemsd7m")
    file = source.file("PeMSD7_W_228.csv")
    found = search("pemsd7m", PEMSD7M_DISTANCES, root)
    if found is None:
        content = read_file(source, file.name, root, allow_download)
        distances = distances_from_matrix(content, file.name, PEMSD7M_SHAPE[1])
        return distances, {file.name: file.sha256}
    path = found[1]
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if verify and digest != file.sha256:
        raise DamagedFileError(
            f"{path} is not known: its sha256 must be {file.sha256}, but it is {digest}. It was "
            "not read further. Replace it, or use `pemsd7m(verify=False)` if you trust it."
        )
    distances = distances_from_matrix(content, path.name, PEMSD7M_SHAPE[1])
    return distances, {path.name: digest} if digest == file.sha256 else {}


def _is_known(content: bytes) -> bool:
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    return hashlib.sha256(content).hexdigest() in KNOWN_SHA256 or blob in KNOWN_GIT_BLOBS


def _unzipped(content: bytes, path: Path) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [item for item in archive.infolist() if item.filename.endswith("V_228.csv")]
        if len(members) != 1 or members[0].file_size > LARGEST_MEMBER:
            raise ValueError(
                f"{path.name} must hold one file V_228.csv of at most {LARGEST_MEMBER} bytes, but "
                f"holds {', '.join(archive.namelist())}."
            )
        return archive.read(members[0])
