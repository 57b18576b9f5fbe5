"""Splits: sizes, disjointness, seeds, and what cannot be split."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphode.data import Split, random_split, random_split_by_fractions


def labels_of(*counts: int, unknown: int = 0) -> torch.Tensor:
    labels = torch.cat([torch.full((n,), c) for c, n in enumerate(counts)] + [-torch.ones(unknown)])
    return labels.long()[torch.randperm(len(labels))]


@given(
    st.lists(st.integers(5, 30), min_size=1, max_size=5),
    st.integers(1, 5),
    st.integers(0, 8),
    st.integers(0, 2**31),
)
def test_a_random_split_has_the_sizes_asked_for(counts, per_class, unknown, seed):
    labels = labels_of(*counts, unknown=unknown)
    left = sum(counts) - per_class * len(counts)
    split = random_split(labels, per_class, val=left // 2, test=left - left // 2, seed=seed)
    assert labels[split.train].bincount().tolist() == [per_class] * len(counts)
    used = torch.cat([split.train, split.val, split.test])
    assert len(split.val) == left // 2
    assert sorted(used.tolist()) == (labels >= 0).nonzero()[:, 0].tolist()


def test_validation_per_class_and_all_the_rest_for_test():
    labels = labels_of(60, 55, 52)
    split = random_split(labels, 20, val_per_class=30, test=None)
    assert labels[split.val].bincount().tolist() == [30, 30, 30]
    assert labels[split.test].bincount().tolist() == [10, 5, 2]


def test_the_seed_decides_and_nothing_else():
    labels = labels_of(100, 100)
    first = random_split(labels, val=20, test=20, seed=7)
    torch.rand(3)
    again = random_split(labels, val=20, test=20, seed=7)
    other = random_split(labels, val=20, test=20, seed=8)
    state = torch.get_rng_state()
    random_split(labels, val=20, test=20, seed=9)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(first.train, again.train)
    assert not torch.equal(first.train, other.train)


def test_validation_and_test_are_drawn_alike():
    """The nodes left over are mixed: each class has its share in validation."""
    split = random_split(labels := labels_of(500, 500), 20, val=480, test=480)
    assert abs(int(labels[split.val].sum()) - 240) < 60


def test_a_class_too_small_is_named():
    with pytest.raises(ValueError, match="class 1 has 19"):
        random_split(labels_of(100, 19), val=10, test=10)
    with pytest.raises(ValueError, match="class 1 has 0"):
        random_split(torch.tensor([0, 0, 2, 2]), per_class=1, val=0, test=0)
    with pytest.raises(ValueError, match=r"120 labelled nodes are 420 too few"):
        random_split(labels_of(60, 60), val=500, test=0)
    with pytest.raises(ValueError, match=r"520 labelled nodes are 1000 too few"):
        random_split(labels_of(520), val=500)
    with pytest.raises(ValueError, match="there is none"):
        random_split(torch.tensor([-1, -1]))


@given(st.lists(st.integers(10, 40), min_size=1, max_size=4), st.integers(0, 99))
def test_fractions_hold_in_every_class(counts, seed):
    labels = labels_of(*counts, unknown=3)
    split = random_split_by_fractions(labels, 0.6, 0.2, seed=seed)
    for label, count in enumerate(counts):
        assert abs(int((labels[split.train] == label).sum()) - 0.6 * count) <= 1
        assert abs(int((labels[split.val] == label).sum()) - 0.2 * count) <= 1
    used = torch.cat([split.train, split.val, split.test])
    assert sorted(used.tolist()) == (labels >= 0).nonzero()[:, 0].tolist()


def test_fractions_may_leave_nodes_out():
    split = random_split_by_fractions(labels_of(100), 0.1, 0.1, 0.1)
    assert [len(part) for part in (split.train, split.val, split.test)] == [10, 10, 10]


@pytest.mark.parametrize("fractions", [(0.0, 0.5, 0.5), (0.5, 0.5, None), (0.6, 0.3, 0.2)])
def test_fractions_that_do_not_fit_are_refused(fractions):
    with pytest.raises(ValueError, match="positive and sum to at most 1"):
        random_split_by_fractions(labels_of(100), *fractions)


def test_a_class_too_small_for_its_fractions_is_named():
    with pytest.raises(ValueError, match="class 1 has 2 labelled nodes, which makes 1, 1 and 0"):
        random_split_by_fractions(labels_of(50, 2))


@pytest.mark.parametrize(
    ("train", "message"),
    [([0, 1], "node 1 2 times"), ([0, 9], "from 0 to 4"), ([0, 4], "node 4 has none")],
)
def test_a_wrong_split_is_refused(train, message):
    split = Split("mine", torch.tensor(train), torch.tensor([1]), torch.tensor([2]))
    with pytest.raises(ValueError, match=message):
        split.check(torch.tensor([0, 1, 0, 1, -1]))
