"""The citation graphs: what the files say, the public split, the published counts."""

import importlib

import numpy as np
import pytest
import torch

from graphode.data import planetoid
from graphode.data import python2_pickles as reader
from graphode.data.catalogue import SOURCES
from graphode.data.planetoid import PUBLISHED
from graphode.data.store import DamagedFileError, MissingFileError
from tests.data.planetoid_files import array, neighbor_lists, pickled, write_planetoid


def test_tiny_files_are_read_as_they_were_written(tmp_path):
    written = write_planetoid(tmp_path / "tiny")
    data = planetoid("tiny", tmp_path, normalize_features=False, verify=False)
    np.testing.assert_array_equal(data.features.toarray(), written["features"])
    np.testing.assert_array_equal(data.labels, written["labels"])
    np.testing.assert_array_equal(data.graph.to_dense(), written["adjacency"])
    assert (data.num_nodes, data.num_edges, data.num_features, data.num_classes) == (10, 5, 4, 2)
    assert data.train.tolist() == [0, 1]
    assert data.val.tolist() == [2, 3, 4, 5]
    assert data.test.tolist() == [6, 8, 9]
    assert data.checksums == {}


def test_files_may_lie_in_the_root_itself(tmp_path):
    write_planetoid(tmp_path)
    assert planetoid("tiny", tmp_path, verify=False).num_nodes == 10


def test_rows_sum_to_one_or_stay_empty(tmp_path):
    written = write_planetoid(tmp_path)
    data = planetoid("tiny", tmp_path, verify=False)
    sums = written["features"].sum(1, keepdims=True)
    expected = np.divide(written["features"], sums, out=np.zeros((10, 4)), where=sums > 0)
    np.testing.assert_allclose(data.features.toarray(), expected, rtol=1e-6)
    assert data.features.dtype == np.float32


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_real_sets_have_the_published_counts_and_split(data_root, name):
    data = planetoid(name, data_root, allow_download=False)
    nodes, edges, features, classes = PUBLISHED[name]
    assert (data.num_nodes, data.num_edges) == (nodes, edges)
    assert data.graph.is_symmetric
    assert not data.graph.diagonal.any()
    assert data.features.shape == (nodes, features)
    assert data.labels[data.train].bincount().tolist() == [20] * classes
    assert data.val.tolist() == list(range(20 * classes, 20 * classes + 500))
    assert (len(data.test), int(data.test.max())) == (1000, nodes - 1)
    sums = np.asarray(data.features.sum(1)).ravel()
    np.testing.assert_allclose(sums[sums > 0], 1, rtol=1e-5)
    assert data.checksums == {file.name: file.sha256 for file in SOURCES[name].files}


def test_citeseers_missing_papers_have_edges_but_no_words_and_no_label(data_root):
    data = planetoid("citeseer", data_root, allow_download=False)
    missing = (data.labels < 0).nonzero()[:, 0]
    assert len(missing) == 15
    assert data.graph.degrees[missing].sum() == 16
    assert data.features[missing.numpy()].nnz == 0
    assert not torch.isin(data.split.test, missing).any()


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_pyg_reads_the_same(data_root, name, tmp_path):
    """PyG's own reader, on the same files, is the oracle."""
    from torch_geometric.io import read_planetoid_data

    theirs = read_planetoid_data(str(data_root / name), name)
    ours = planetoid(name, data_root, normalize_features=False, allow_download=False)
    assert torch.equal(theirs.x.to_dense().float(), torch.from_numpy(ours.features.toarray()))
    known = ours.labels >= 0
    assert torch.equal(theirs.y[known], ours.labels[known])
    for part in ("train", "val", "test"):
        mask = getattr(theirs, f"{part}_mask")
        assert torch.equal(mask.nonzero()[:, 0], getattr(ours, part))
    source, target = theirs.edge_index
    theirs_keys = (source * ours.num_nodes + target)[source != target].unique()
    source, target = ours.graph.edge_index
    assert torch.equal(theirs_keys, (source * ours.num_nodes + target).sort()[0])


@pytest.fixture
def cora_copy(data_root, tmp_path, monkeypatch):
    """Cora where it can be damaged, with nothing else to fall back on."""
    monkeypatch.delenv("GRAPHODE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for file in SOURCES["cora"].files:
        path = tmp_path / "cora" / file.name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes((data_root / "cora" / file.name).read_bytes())
    return tmp_path


@pytest.mark.parametrize("part", ["x", "allx", "graph", "test.index"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "empty"])
def test_a_damaged_file_is_named_and_never_parsed(cora_copy, part, damage, monkeypatch):
    path = cora_copy / "cora" / f"ind.cora.{part}"
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    path.write_bytes(content if damage == "flipped" else content[: -100 if damage == "cut" else 0])
    parsed = []
    original = reader.read_pickle

    def spy(content: bytes, name: str):
        parsed.append(name)
        return original(content, name)

    loader = importlib.import_module("graphode.data.planetoid")  # the name is the function too
    monkeypatch.setattr(loader, "read_pickle", spy)
    expected = SOURCES["cora"].file(path.name).sha256
    with pytest.raises(DamagedFileError, match=rf"ind\.cora\.{part}.*{expected}.*fetch cora"):
        planetoid("cora", cora_copy)
    assert path.name not in parsed


def test_a_missing_file_is_named_with_the_places_searched(cora_copy):
    (cora_copy / "cora" / "ind.cora.ty").unlink()
    with pytest.raises(MissingFileError, match=r"ind\.cora\.ty.*root.*cache.*fetch cora"):
        planetoid("cora", cora_copy, allow_download=False)


def test_an_unknown_name_lists_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match=r"'core'.*citeseer, cora, pubmed"):
        planetoid("core", tmp_path)


def test_own_files_need_a_folder(tmp_path):
    with pytest.raises(ValueError, match="`root` must name the folder"):
        planetoid("tiny", verify=False)
    with pytest.raises(MissingFileError, match=r"ind\.tiny\.y is not here"):
        planetoid("tiny", tmp_path, verify=False)


@pytest.mark.parametrize(
    ("part", "content", "message"),
    [
        ("graph", pickled(neighbor_lists({0: [10]})), "from 0 to 9.* 0 to 10"),
        ("graph", pickled(array(np.zeros(3, np.float32))), "must hold a dict.*holds a ndarray"),
        ("test.index", b"8\n6\n", "each of the 3 rows"),
        ("test.index", b"8\n6\n6\n", "2 of them different"),
        ("test.index", b"8\n5\n9\n", "from 6 on.*holds 5"),
        ("y", pickled(array(np.zeros((3, 2), np.int32))), "as many rows"),
    ],
)
def test_own_files_that_do_not_fit_together_are_refused(tmp_path, part, content, message):
    write_planetoid(tmp_path)
    (tmp_path / f"ind.tiny.{part}").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        planetoid("tiny", tmp_path, verify=False)
