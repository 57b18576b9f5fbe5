"""The search behind preset `tuned` looks at validation data alone, and goes on where it stood."""

import dataclasses
import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from graphode.data import cora_linqs
from graphode.experiments.node_classification import NodeClassification

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
sys.path.insert(0, str(ROOT / "benchmarks"))
import search_table_1  # noqa: E402
from search_spaces import FAMILIES  # noqa: E402

every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())


def options(out: Path, **changes) -> Namespace:
    given = {
        "model": "diffusion",
        "dataset": "cora_linqs",
        "data_root": None,
        "device": "cpu",
        "configurations": 4,
        "random": 3,
        "members": [1, 2],
        "hidden": [4],
        "epochs": 10,
        "patience": 5,
        "out": out,
    }
    return Namespace(**{**given, **changes})


@every_family
def test_settings_are_the_same_whenever_they_are_drawn(family):
    choices = family.choices([64, 32])
    drawn = [search_table_1.proposed(number, 0, choices, []) for number in range(20)]
    assert drawn == [search_table_1.proposed(number, 0, choices, []) for number in range(20)]
    assert len({json.dumps(settings) for settings in drawn}) == 20
    for settings in map(family.finished, drawn):
        assert settings.keys() == set(family.searched)
        assert settings["t1"] <= settings["num_steps"] * 1.0  # steps that are stable
        NodeClassification.of(family.model, "cora", **settings)


@every_family
def test_a_search_begins_with_what_was_published(family):
    for dataset in ("cora", "citeseer", "pubmed"):
        for first in family.first(dataset):
            NodeClassification.of(family.model, dataset, **first)
            assert family.finished(first) == first
    assert family.first("cora_linqs") == family.first("cora")


@every_family
def test_the_best_are_changed_in_few_choices(family):
    choices = family.choices([64, 32])
    parent = search_table_1.proposed(0, 0, choices, [])
    for number in range(20):
        child = search_table_1.proposed(number, 0, choices, [parent])
        changed = [
            name
            for name, options in choices.items()
            if any(child[key] != parent[key] for key in options[0])
        ]
        assert len(changed) <= search_table_1.CHANGED


def test_test_labels_change_nothing(tmp_path, monkeypatch, without_type_checks):
    found = []
    for shift in (0, 1):
        data = cora_linqs()
        labels = data.labels.clone()
        labels[data.test] = (labels[data.test] + shift) % data.num_classes
        other = dataclasses.replace(data, labels=labels)
        monkeypatch.setattr(search_table_1, "load_node_data", lambda *args, data=other: data)
        out = tmp_path / f"{shift}.json"
        search_table_1.search(options(out, configurations=1))
        rows = json.loads(out.read_text())
        found.append([{**row, "seconds": 0} for row in rows])
        assert not any("test" in name for name in rows[0])
    assert found[0] == found[1]


def score(row) -> float:
    return sum(row["validation_accuracy"])


def test_a_search_goes_on_where_it_stood(tmp_path, monkeypatch, capsys, without_type_checks):
    out = tmp_path / "search.json"
    search_table_1.search(options(out))
    rows = json.loads(out.read_text())
    assert len(rows) == 4
    # Of four settings two go into the second round, with one more member each.
    assert sorted(len(row["seeds"]) for row in rows) == [1, 1, 2, 2]
    assert all(len(row["validation_accuracy"]) == len(row["seeds"]) for row in rows)
    shown = capsys.readouterr().out
    monkeypatch.setattr(search_table_1, "train", None)
    search_table_1.search(options(out))
    assert json.loads(out.read_text()) == rows
    assert capsys.readouterr().out == shown
    trials = search_table_1.Trials(out, "diffusion")
    best = max((row for row in rows if len(row["seeds"]) == 2), key=score)
    assert trials.best_elsewhere("cora") == [best["settings"]]
    assert trials.best_elsewhere("cora_linqs") == []
    assert search_table_1.Trials(out, "gcnii").rows == []


def test_searches_of_several_data_sets_may_share_a_file(tmp_path):
    out = tmp_path / "search.json"
    searches = {name: search_table_1.Trials(out, "diffusion") for name in ("cora", "citeseer")}
    for number in range(2):
        for name, trials in searches.items():
            trials.row({"dataset": name, "settings": {"lr": number}})["seeds"].append(1)
            trials.save(name)
    found = [(row["dataset"], row["settings"]["lr"]) for row in json.loads(out.read_text())]
    assert sorted(found) == [("citeseer", 0), ("citeseer", 1), ("cora", 0), ("cora", 1)]


@pytest.mark.parametrize("dataset", ["cora", "citeseer", "pubmed"])
def test_the_tuned_preset_is_what_the_search_found(dataset):
    best = search_table_1.Trials(RESULTS / "table-1-search.json", "diffusion").best(dataset)
    preset = NodeClassification.of(dataset=dataset, preset="tuned")
    expected = {**best["settings"], "epochs": best["epochs"], "patience": best["patience"]}
    stopping = json.loads((RESULTS / "early-stopping.json").read_text())
    if stopping["dataset"] == dataset:
        expected["patience"] = max(stopping["accuracy"], key=lambda row: row["mean"])["patience"]
    assert {name: getattr(preset, name) for name in expected} == expected


def test_another_length_of_training_begins_with_the_best_of_the_first(tmp_path):
    trials = search_table_1.Trials(tmp_path / "search.json", "diffusion")
    for number in range(5):
        for length in (100, 200):
            key = {"dataset": "cora", "epochs": length, "patience": 5, "settings": {"lr": number}}
            row = trials.row(key)
            row["seeds"] = [1, 2] if number < 4 else [1]
            row["validation_accuracy"] = [number / 10] * len(row["seeds"])
    length = {"epochs": 200, "patience": 5}
    found = trials.best_of_other_lengths("cora", length)
    assert found == [{"lr": 3}, {"lr": 2}, {"lr": 1}]
    assert trials.best_of_other_lengths("pubmed", length) == []


def test_the_objective_has_no_test_accuracy():
    task = search_table_1.ValidationObjective.of(cora_linqs(), torch.device("cpu"))
    assert task.measures == ("validation_loss", "validation_accuracy")
    data = cora_linqs()
    assert bool((task.labels[data.test] == 0).all())
    with pytest.raises(AssertionError):
        torch.testing.assert_close(task.labels, data.labels)
