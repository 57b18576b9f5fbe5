"""A saved model is the model that was saved, and a file can do nothing but describe one."""

import copy
import enum
import functools
import json
import math
import os
import sys

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import graphode as gd
from tests.fields.registry import CASES, CHANNELS
from tests.models.registry import IN, MODELS, bag_of_words, random_graph


def again(model: nn.Module, folder, *classes) -> nn.Module:
    """The model, written and read."""
    path = folder / "model.safetensors"
    gd.save(model, path)
    loaded = gd.load(path, classes=classes)
    assert loaded is not model
    assert repr(loaded) == repr(model)
    return loaded


class Kind(enum.StrEnum):
    SLOW = "slow"


class Decay(nn.Module):
    """A field of a user's own."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate, self.scale = rate, nn.Parameter(torch.tensor(2.0))
        # Neither parameters nor buffers.
        self.shift, self.learned = torch.tensor([0.5]), torch.tensor(1.0, requires_grad=True)
        self.limits = {"low": -math.inf, "high": (1, np.float64(2.5)), "kind": Kind.SLOW}

    def forward(self, t, h: Tensor, graph) -> Tensor:
        return -self.rate * self.scale * (h - self.shift)


def cube(h: Tensor) -> Tensor:
    return h**3


@pytest.mark.parametrize("name", MODELS)
def test_every_model_predicts_as_before(tmp_path, name):
    model, graph, x = MODELS[name](), random_graph().normalize("sym"), torch.randn(6, IN)
    loaded = again(model, tmp_path)
    with gd.stochastic(3, 4):
        before = model(x, graph)
    with gd.stochastic(3, 4):
        assert torch.equal(loaded(x, graph), before), "the same masks too"
    assert torch.equal(loaded.eval()(x, graph), model.eval()(x, graph))
    assert [p.requires_grad for p in loaded.parameters()] == [True] * len(list(model.parameters()))


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("Conv-")])
def test_every_field_is_the_same_in_a_flow(tmp_path, name):
    case = CASES[name]
    graph, h = case.prepare(random_graph()), torch.randn(2, 6, CHANNELS)
    flow = gd.Flow(case.build(), solver="heun", num_steps=2, gradient="checkpoint")
    model = gd.GDE(flow=flow, t1=0.3)
    loaded = again(model, tmp_path)
    assert loaded.flow.options == flow.options
    with torch.no_grad():
        assert torch.equal(loaded(h, graph), model(h, graph))


@pytest.mark.parametrize("kind", [gd.GCDEGRU, gd.GCDELSTM, gd.GCRNN])
def test_hybrid_models_forecast_as_before(tmp_path, kind):
    model = kind(3, 4, residual=True)
    x, times = torch.randn(2, 3, 6, 3), torch.tensor([[0.0, 0.5, 2.0], [0.0, 1.0, 1.5]])
    asked = (x, times, random_graph().normalize("sym"), torch.tensor([[2.5], [3.0]]))
    assert torch.equal(again(model, tmp_path)(*asked), model(*asked))


def test_sparse_inputs_and_training_go_on(tmp_path):
    model = gd.GCDE.rk4(IN, 4, 3)
    loaded = again(model, tmp_path)
    graph, x = random_graph().normalize("sym"), gd.SparseFeatures(bag_of_words())
    gradients = []
    for each in (model, loaded):
        with gd.stochastic(0, 1):
            loss = each(x, graph).square().sum()
        gradients.append(torch.autograd.grad(loss, list(each.parameters())))
    assert all(map(torch.equal, *gradients))


def test_classes_and_functions_of_ones_own_are_given_again(tmp_path):
    field = Decay(0.3)
    readout = gd.MLP(1, 2, 1, activation=cube)
    model = gd.GDE(flow=gd.Flow(field), readout=readout, t1=nn.Parameter(torch.tensor(2.0)))
    loaded = again(model, tmp_path, Decay, cube, Kind)
    h, graph = torch.randn(6, 1), random_graph().normalize("sym")
    assert torch.equal(loaded(h, graph), model(h, graph))
    assert (loaded.flow.field.limits, loaded.flow.field.rate) == (field.limits, 0.3)
    assert loaded.flow.field.limits["kind"] is Kind.SLOW
    assert loaded.flow.field.learned.requires_grad
    assert not loaded.flow.field.shift.requires_grad
    with pytest.raises(ValueError, match=r"needs \'Decay\', .* of your own.*classes=\[Decay\]"):
        gd.load(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="two of the name 'Decay'"):
        gd.load(tmp_path / "model.safetensors", [Decay, type("Decay", (nn.Module,), {})])


def test_recordings_of_a_flow_are_not_copied_or_saved(tmp_path):
    flow = gd.Flow(gd.GraphConvField([2, 2]), solver="rk4", num_steps=2, capture=True)
    flow.captured.recordings[("a", "shape")] = ((), lambda h: h)
    for other in (copy.deepcopy(flow), again(flow, tmp_path)):
        assert other.captured.recordings == {}


def test_one_class_need_not_be_listed_and_a_module_is_no_class(tmp_path):
    path = tmp_path / "model.safetensors"
    gd.save(gd.Flow(Decay(1.0)), path)
    assert gd.load(path, [Decay, Kind]).field.rate == 1.0
    with pytest.raises(ValueError, match="needs 'Kind'"):
        gd.load(path, Decay)
    with pytest.raises(TypeError, match="not the model"):
        gd.load(path, [Decay(1.0)])


def test_what_is_shared_stays_shared(tmp_path):
    layer = nn.Linear(2, 2)
    model = nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(2, 2))
    model[3].weight = layer.weight
    loaded = again(model, tmp_path)
    assert loaded[0] is loaded[2]
    assert loaded[3].weight is loaded[0].weight
    assert len(list(loaded.parameters())) == 3


def test_a_member_with_tied_weights_is_saved_with_its_ties(tmp_path):
    def build(seed):
        layer = nn.Linear(2, 2)
        return gd.GDE(encoder=layer, flow=gd.Flow(Decay(1.0)), readout=layer)

    member = gd.Ensemble(build, [0, 1]).member(1)
    loaded = again(member, tmp_path, Decay, Kind)
    assert loaded.encoder.module is loaded.readout.module
    assert loaded.state_dict().keys() == member.state_dict().keys()


def test_a_class_of_ones_own_may_be_called_as_one_of_ours(tmp_path):
    own = type("Ensemble", (nn.Linear,), {})
    gd.save(own(2, 2), tmp_path / "model.safetensors")
    assert type(gd.load(tmp_path / "model.safetensors", own)) is own


def test_dtypes_buffers_and_modes_are_kept(tmp_path):
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)).to(torch.float32).eval()
    model[1].weight.requires_grad_(False)
    model[0].register_buffer("passing", torch.arange(3), persistent=False)
    loaded = again(model, tmp_path)
    assert loaded[1].weight.dtype == torch.float32
    assert not loaded.training
    assert not loaded[1].weight.requires_grad
    assert torch.equal(loaded[0].passing, torch.arange(3))
    assert list(loaded.state_dict()) == list(model.state_dict())


def test_recurrent_layers_of_torch_know_their_weights(tmp_path):
    model = nn.GRU(2, 3)
    loaded = again(model, tmp_path)
    x = torch.randn(4, 2)
    assert torch.equal(loaded(x)[0], model(x)[0])
    with torch.no_grad():
        loaded.weight_ih_l0.zero_()
    assert not torch.equal(loaded(x)[0], model(x)[0])


def closing_over(value: float):
    def scaled(h: Tensor) -> Tensor:
        return value * h

    return scaled


def pyg_field() -> nn.Module:
    from torch_geometric.nn import GCNConv

    return gd.ConvField(GCNConv(2, 2))


def with_hook() -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda *_: None)
    return layer


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: gd.Flow(lambda t, h, graph: -h), "`field` of the model is <function.*named"),
        (lambda: gd.GraphConvMap([1, 1], closing_over(2.0)), "closes over values.*as a module"),
        (lambda: gd.Flow(functools.partial(Decay(1.0).forward)), "a partial, which is more"),
        (with_hook, "has hooks.*Remove them"),
        (pyg_field, "PyG's GCNConv.*state_dict"),
        (lambda: gd.Ensemble(lambda seed: nn.Linear(1, 1), [0, 1]), r"ensemble\.member"),
        (
            lambda: nn.Sequential(gd.Ensemble(lambda seed: nn.Linear(1, 1), [0, 1])),
            r"ensemble\.member",
        ),
    ],
)
def test_what_no_file_can_hold_is_refused_with_what_to_do(tmp_path, build, message):
    with pytest.raises(gd.CannotBeSavedError, match=f"(?s){message}"):
        gd.save(build(), tmp_path / "model.safetensors")
    assert os.listdir(tmp_path) == []


MADE_BY_CALL = {"object": "torch.nn.Linear", "called": True, "arguments": [2, 2], "state": None}


def rewritten(path, change) -> None:
    """The file with another blueprint."""
    with safe_open(path, framework="pt") as file:
        header = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    blueprint = json.loads(header["blueprint"])
    change(blueprint)
    save_file(tensors, path, metadata={**header, "blueprint": json.dumps(blueprint)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b.update(module="antigravity.fly"), "needs 'antigravity.fly'"),
        (lambda b: b["attributes"].update(x={"named": "os.system"}), "needs 'os.system'"),
        (lambda b: b["attributes"].update(x={"named": "eval"}), "needs 'eval'"),
        (lambda b: b["attributes"].update(x={"dtype": "load"}), "'load' is a dtype"),
        (lambda b: b.update(module="activation.relu"), "is a module; it is not"),
        (lambda b: b["attributes"].update(x=MADE_BY_CALL), "plain objects; it is not"),
        (lambda b: b["parameters"].update(weight="elsewhere"), "blueprint in .* is damaged"),
        (lambda b: b.pop("parts"), "blueprint in .* is damaged"),
    ],
)
def test_a_tampered_file_is_refused_and_imports_nothing(tmp_path, change, message):
    path = tmp_path / "model.safetensors"
    gd.save(nn.Linear(2, 2), path)
    rewritten(path, change)
    with pytest.raises(ValueError, match=message):
        gd.load(path)
    assert "antigravity" not in sys.modules


def test_other_and_damaged_files_are_told_apart(tmp_path, without_type_checks):
    path = tmp_path / "model.safetensors"
    with pytest.raises(FileNotFoundError, match="There is no file"):
        gd.load(path)
    with pytest.raises(FileNotFoundError, match="There is no folder"):
        gd.save(nn.Linear(2, 2), tmp_path / "missing" / "model.safetensors")
    with pytest.raises(TypeError, match="must be a module, but is a dict"):
        gd.save({"x": torch.ones(2)}, path)
    save_file({"x": torch.ones(2)}, path)
    with pytest.raises(ValueError, match="holds tensors, but no model"):
        gd.load(path)
    gd.save(nn.Linear(2, 2), path)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match="not a safetensors file, or is damaged"):
        gd.load(path)


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    gd.save(nn.Linear(2, 2), path)
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(OSError, match="No space"):
        gd.save(nn.Linear(3, 3), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]
