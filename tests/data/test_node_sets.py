"""The front door, the graphs kept as npz, and Cora inside the package."""

import numpy as np
import pytest
import torch

from graphode.data import NODE_SETS, NodeData, Split, cora_linqs, load_node_data, planetoid, texas
from graphode.data.embedded.pack_cora_linqs import pack
from graphode.data.node_data import undirected_graph
from graphode.data.npz_graphs import PUBLISHED
from graphode.data.store import DamagedFileError


@pytest.fixture
def nothing_at_hand(tmp_path, monkeypatch):
    """No folder of data, an empty cache, and no net."""
    monkeypatch.delenv("GRAPHODE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("graphode.data.store.download", lambda *a: pytest.fail("used the net"))


@pytest.mark.usefixtures("nothing_at_hand")
def test_embedded_cora_needs_no_file_and_no_net():
    data = load_node_data("cora_linqs")
    assert (data.num_nodes, data.num_edges, data.num_features, data.num_classes) == (
        2708,
        5278,
        1433,
        7,
    )
    assert data.train.tolist() == list(range(140))
    assert data.val.tolist() == list(range(200, 500))
    assert data.test.tolist() == list(range(500, 1500))
    assert data.labels[data.train].bincount().tolist() == [14, 11, 41, 28, 21, 8, 17]
    assert data.class_names[2] == "Neural_Networks"
    assert data.labels[0] == 2, "paper 31336, the first of cora.content"
    assert data.graph.is_symmetric
    np.testing.assert_allclose(np.asarray(data.features.sum(1)).ravel(), 1, rtol=1e-5)


def test_embedded_cora_is_what_the_text_files_say(data_root):
    """Parsed by a plain loop, with DGL's rule for the graph, as an oracle."""
    import gzip

    folder = data_root / "cora_linqs"
    lines = gzip.decompress((folder / "cora.content.gz").read_bytes()).decode().splitlines()
    node = {line.split("\t")[0]: k for k, line in enumerate(lines)}
    features = np.array([[int(word) for word in line.split("\t")[1:-1]] for line in lines])
    adjacency = np.zeros((2708, 2708))
    for line in (folder / "cora.cites").read_text().splitlines():
        cited, citing = line.split()
        adjacency[node[cited], node[citing]] = 1
    symmetric = np.maximum(adjacency, adjacency.T)
    data = cora_linqs(normalize_features=False)
    np.testing.assert_array_equal(data.features.toarray(), features)
    np.testing.assert_array_equal(data.graph.to_dense(), symmetric)
    assert [data.class_names[c] for c in data.labels] == [line.split("\t")[-1] for line in lines]


def test_the_packed_file_is_what_its_script_makes(data_root):
    import graphode.data

    path = graphode.data.__path__[0] + "/embedded/cora_linqs.npz"
    with np.load(path, allow_pickle=False) as shipped:
        for name, values in pack(data_root / "cora_linqs").items():
            np.testing.assert_array_equal(shipped[name], values)


def test_both_forms_of_cora_are_the_same_papers(data_root):
    linqs = cora_linqs(normalize_features=False)
    public = planetoid("cora", data_root, normalize_features=False, allow_download=False)
    assert sorted(linqs.features.sum(1).A1) == sorted(public.features.sum(1).A1)
    assert sorted(linqs.graph.degrees.tolist()) == sorted(public.graph.degrees.tolist())
    assert sorted(linqs.labels.bincount().tolist()) == sorted(public.labels.bincount().tolist())


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_npz_graphs_have_the_published_counts(data_root, name):
    data = load_node_data(name, data_root, allow_download=False)
    found = (data.num_nodes, data.num_edges, data.num_features, data.num_classes)
    assert found == PUBLISHED[name]
    assert data.graph.is_symmetric
    assert not data.graph.diagonal.any()


def test_texas_has_ten_splits_that_cover_it(data_root):
    splits = [texas(data_root, k).split for k in range(10)]
    for split in splits:
        assert len(split.train) + len(split.val) + len(split.test) == 183
    assert len({tuple(split.test.tolist()) for split in splits}) == 10
    with pytest.raises(ValueError, match=r"from 0 to 9, but it is 10"):
        texas(data_root, 10)


def test_shchurs_split_is_drawn_by_its_seed(data_root):
    data = load_node_data("amazon_photo", data_root, seed=1)
    assert data.labels[data.train].bincount().tolist() == [20] * 8
    assert data.labels[data.val].bincount().tolist() == [30] * 8
    assert len(data.test) == 7650 - 8 * 50
    other = load_node_data("amazon_photo", data_root, seed=2)
    assert not torch.equal(data.train, other.train)


def test_a_random_split_of_a_citation_graph():
    data = load_node_data("cora_linqs", split="random", seed=3)
    assert data.labels[data.train].bincount().tolist() == [20] * 7
    assert (len(data.val), len(data.test), data.split.name) == (500, 1000, "random 3")


def test_unknown_names_and_splits_list_the_known_ones():
    with pytest.raises(ValueError, match=r"'karate'.*cora, citeseer, pubmed, cora_linqs, texas"):
        load_node_data("karate")
    with pytest.raises(ValueError, match=r"cora has no split 'authors'.*public, random"):
        load_node_data("cora", split="authors")
    with pytest.raises(ValueError, match=r"texas has no split 'public'.*0, 1, 2"):
        load_node_data("texas", split="public")


def test_every_set_of_nodes_is_loaded_by_its_name(data_root):
    for name in NODE_SETS:
        assert load_node_data(name, data_root, allow_download=False).name == name


def test_a_damaged_npz_is_refused(data_root, tmp_path):
    content = bytearray((data_root / "texas" / "texas.npz").read_bytes())
    content[1000] ^= 4
    (tmp_path / "texas.npz").write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"texas\.npz is damaged.*b164b99e.*fetch texas"):
        texas(tmp_path)


def test_node_data_that_does_not_fit_together_is_refused():
    good = cora_linqs()
    split = Split("none", *(torch.zeros(0, dtype=torch.long),) * 3)
    fields = {"name": "mine", "graph": good.graph, "num_classes": 7, "split": split}
    with pytest.raises(ValueError, match=r"each of its 2708 nodes.*2707 rows"):
        NodeData(features=good.features[1:], labels=good.labels, **fields)
    with pytest.raises(ValueError, match=r"labels from 0 to 6.* to 7"):
        NodeData(features=good.features, labels=good.labels + 1, **fields)
    with pytest.raises(ValueError, match=r"must have 1 nodes.*has 2708 nodes, 5278 edges"):
        good.check_counts(1, 2, 3, 4)


def test_edges_are_made_mutual_once_each():
    graph = undirected_graph(np.array([0, 1, 1, 2, 3]), np.array([1, 0, 2, 2, 1]), 5)
    expected = torch.zeros(5, 5)
    for a, b in [(0, 1), (1, 2), (1, 3)]:
        expected[a, b] = expected[b, a] = 1
    assert torch.equal(graph.to_dense(), expected)
