"""PEMS08 and PeMSD7(M): their files in every form, and what they are known to hold."""

import hashlib
import zipfile

import numpy as np
import pytest
import torch

from graphode.data import (
    Standardizer,
    keep_mask,
    load_traffic,
    pems08,
    pemsd7m,
    traffic_windows,
)
from graphode.data import traffic as module
from graphode.data.store import DamagedFileError, MissingFileError


def test_pems08_is_what_its_source_says(data_root):
    series = pems08(data_root, allow_download=False)
    assert series.speeds.shape == (17_844, 170)
    assert abs(series.speeds[0, 0].item() - 65.8) < 1e-12
    assert (series.speeds.min().item(), series.speeds.max().item()) == (3.0, 82.3)
    assert abs(series.speeds.mean().item() - 63.76) < 0.005
    assert series.distances is not None
    roads = torch.isfinite(series.distances) & (series.distances > 0)
    assert int(roads.sum()) == 2 * 274
    assert roads.any(1).all()
    assert len(series.checksums) == 2


def test_without_pems08_the_error_says_how_the_published_file_is_read(tmp_path, monkeypatch):
    monkeypatch.delenv("GRAPHODE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(MissingFileError, match=r"--dataset file --speeds PEMS08.npz --channel 2 "):
        pems08(tmp_path)


@pytest.mark.parametrize("keep", [0.3, 1.0])
def test_persistence_on_pems08_is_that_of_the_raw_file(data_root, keep):
    """From the npz to the error by numpy alone, and through recording, windows and z-scores."""
    series = pems08(data_root, allow_download=False)
    kept = keep_mask(series.num_steps, keep, seed=0)
    fitted = Standardizer.fit(series, kept)
    batch = traffic_windows(series, series.split.test, kept, fitted).batch()
    error = fitted.restore(batch.x[:, -1, :, 0]) - fitted.restore(batch.target)
    found = error.square().mean().sqrt().item()
    with np.load(data_root / "pems08" / "pems08_speed.npz", allow_pickle=False) as arrays:
        speeds = arrays["speed_x10"] / 10
    test = speeds[14_275:][kept[14_275:].numpy()]
    plain = np.sqrt(np.mean((test[5:] - test[4:-1]) ** 2))
    assert abs(found - plain) < 1e-9
    if keep == 1:
        assert abs(found - 1.53) < 0.005, "the figure in the experiment's description"


def test_pems08s_second_file_is_needed(data_root, tmp_path, monkeypatch):
    monkeypatch.delenv("GRAPHODE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "pems08_speed.npz").write_bytes(
        (data_root / "pems08" / "pems08_speed.npz").read_bytes()
    )
    with pytest.raises(MissingFileError, match=r"distance\.csv of pems08 is not here"):
        pems08(tmp_path, allow_download=False)


def csv_bytes(speeds: np.ndarray) -> bytes:
    return "\n".join(",".join(f"{v:.1f}" for v in row) for row in speeds).encode()


@pytest.fixture
def small(data_root, tmp_path, monkeypatch):
    """PeMSD7(M) with two intervals a day: real distances, made-up speeds."""
    monkeypatch.delenv("GRAPHODE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "STEPS_PER_DAY", 2)
    monkeypatch.setattr(module, "PEMSD7M_SHAPE", (88, 228))
    original = module.split_by_days
    monkeypatch.setattr(module, "split_by_days", lambda steps: original(steps, steps_per_day=2))
    folder = tmp_path / "pemsd7m"
    folder.mkdir()
    distances = (data_root / "pemsd7m" / "PeMSD7_W_228.csv").read_bytes()
    (folder / "W_228.csv").write_bytes(distances)
    speeds = np.round(np.random.default_rng(0).uniform(20, 70, (88, 228)), 1)
    return folder, speeds, csv_bytes(speeds)


def known(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr(module, "KNOWN_SHA256", {hashlib.sha256(content).hexdigest()})


@pytest.mark.parametrize("name", ["V_228.csv", "PeMSD7_V_228.csv"])
@pytest.mark.parametrize("flat", [False, True])
def test_pemsd7m_is_read_by_either_name(small, monkeypatch, name, flat):
    folder, speeds, content = small
    known(monkeypatch, content)
    ((folder.parent if flat else folder) / name).write_bytes(content)
    series = pemsd7m(folder.parent, allow_download=False)
    np.testing.assert_array_equal(series.speeds, speeds)
    assert series.distances is not None
    assert series.distances.max() > 45_000
    assert set(series.checksums) == {name, "W_228.csv"}
    assert (len(series.split.train), len(series.split.val), len(series.split.test)) == (68, 10, 10)


def test_pemsd7m_knows_its_weekends(small, monkeypatch):
    folder, _, content = small
    known(monkeypatch, content)
    (folder / "V_228.csv").write_bytes(content)
    series = pemsd7m(folder.parent)
    days = (series.times / 2).floor().unique()
    calendar = np.datetime64("2012-05-01") + days.numpy().astype(int)
    assert np.is_busday(calendar).all(), "Tuesday 1 May to Friday 29 June 2012"
    assert calendar[-1] == np.datetime64("2012-06-29")
    assert series.stretches is not None
    gaps = series.times.diff()
    assert torch.equal(gaps > 1, series.stretches.diff() > 0)


def test_pemsd7m_is_read_from_the_zip(small, monkeypatch):
    folder, speeds, content = small
    path = folder / "PeMS-M.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("PeMS-M/V_228.csv", content)
        archive.writestr("PeMS-M/W_228.csv", b"0")
    known(monkeypatch, path.read_bytes())
    np.testing.assert_array_equal(pemsd7m(folder.parent).speeds, speeds)
    known(monkeypatch, b"another")
    with pytest.raises(DamagedFileError, match=r"PeMS-M\.zip is not known"):
        pemsd7m(folder.parent)
    np.testing.assert_array_equal(pemsd7m(folder.parent, verify=False).speeds, speeds)


def test_pemsd7m_is_known_by_gits_name_too(small, monkeypatch):
    folder, speeds, content = small
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    monkeypatch.setattr(module, "KNOWN_GIT_BLOBS", {blob})
    (folder / "V_228.csv").write_bytes(content)
    np.testing.assert_array_equal(pemsd7m(folder.parent).speeds, speeds)


def test_unknown_speeds_are_refused_unless_trusted(small):
    folder, speeds, content = small
    (folder / "V_228.csv").write_bytes(content)
    found = hashlib.sha256(content).hexdigest()
    with pytest.raises(DamagedFileError, match=rf"V_228\.csv is not known.*{found}.*verify=False"):
        pemsd7m(folder.parent)
    series = pemsd7m(folder.parent, verify=False)
    np.testing.assert_array_equal(series.speeds, speeds)
    assert "V_228.csv" not in series.checksums


def test_tampered_distances_are_refused(small, monkeypatch):
    folder, _, content = small
    known(monkeypatch, content)
    (folder / "V_228.csv").write_bytes(content)
    path = folder / "W_228.csv"
    path.write_bytes(path.read_bytes().replace(b"3.16594", b"3.16595", 1))
    with pytest.raises(DamagedFileError, match=r"W_228\.csv is not known.*c558c602"):
        pemsd7m(folder.parent)


@pytest.mark.parametrize(
    ("content", "message"), [(b"1,2\n3,4\n", "88 × 228.*2 × 2"), (b"a,b\n1,2\n", "numbers only")]
)
def test_speeds_of_another_shape_are_refused(small, content, message):
    folder, _, _ = small
    (folder / "V_228.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        pemsd7m(folder.parent, verify=False)


def test_a_zip_without_speeds_is_refused(small):
    folder, _, _ = small
    with zipfile.ZipFile(folder / "PeMS-M.zip", "w") as archive:
        archive.writestr("readme.txt", b"")
    with pytest.raises(ValueError, match=r"one file V_228\.csv.*readme\.txt"):
        pemsd7m(folder.parent, verify=False)


def test_without_speeds_the_error_says_where_to_put_them(small):
    folder, _, _ = small
    message = rf"V_228\.csv or .* into one of {folder}.*: they have no public address.*bytes\.$"
    with pytest.raises(MissingFileError, match=message):
        pemsd7m(folder.parent)


def test_a_recording_is_loaded_by_its_name(data_root):
    assert load_traffic("pems08", data_root).num_sensors == 170
    with pytest.raises(ValueError, match=r"'pems04'.*pems08, pemsd7m, simulated"):
        load_traffic("pems04")
