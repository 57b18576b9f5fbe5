"""The models of table 1 by name, built from a run's settings."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import nn

from graphode.fields import (
    Controlled,
    DepthVarying,
    GCNIIField,
    GraphConvMap,
    PageRankField,
    PathGate,
)
from graphode.flows import StepControl
from graphode.flows.control import TORCHDIFFEQ
from graphode.models import (
    GCDE,
    GCN,
    GDE,
    MLP,
    GraphConvEncoder,
    GraphConvReadout,
    LinearEncoder,
    LinearReadout,
)
from graphode.models.field_model import one_step_flow

if TYPE_CHECKING:
    from graphode.experiments.node_classification import NodeClassification

CONTROLS = {"ours": StepControl(), "torchdiffeq": TORCHDIFFEQ}


def builder(
    config: "NodeClassification", features: int, classes: int
) -> Callable[[int], nn.Module]:
    """`build(seed)` of the configured model; the ensemble seeds the generator around it."""
    special = {
        "gcn": _gcn,
        "gcn_star": _gcn_star,
        "cgcde_dpr5": _cgcde,
        "gcnii": _gcnii,
        "diffusion": _diffusion,
    }
    make = special.get(config.model, _gcde)

    def build(seed: int) -> nn.Module:
        del seed
        return make(config, features, classes)

    return build


def _gcn(config: "NodeClassification", features: int, classes: int) -> nn.Module:
    """With the first weights of Kipf and Welling: Glorot's, and biases of zero."""
    model = GCN(features, config.hidden, classes, layers=config.layers, **_discrete(config))
    return _glorot(model)


def _gcn_star(config: "NodeClassification", features: int, classes: int) -> nn.Module:
    return GCN.star(features, config.hidden, classes, layers=config.layers, **_discrete(config))


def _gcde(config: "NodeClassification", features: int, classes: int) -> nn.Module:
    return GCDE(
        features,
        config.hidden,
        classes,
        layers=config.layers,
        # With one layer there is no "between": its softplus comes after it.
        final_activation="softplus" if config.layers == 1 else None,
        input_dropout=config.input_dropout,
        field_dropout=config.field_dropout,
        readout_dropout=config.readout_dropout,
        redraw=config.redraw,
        force=config.force,
        t1=config.t1,
        **_flow(config),
    )


def _cgcde(config: "NodeClassification", features: int, classes: int) -> nn.Module:
    """The controlled row of the paper's source: the field sees [h, h(0)], as in its code."""
    width = config.hidden
    inside = GraphConvMap(
        [2 * width, *[width] * config.layers],
        "softplus",
        "softplus" if config.layers == 1 else None,
        config.field_dropout,
        redraw=config.redraw,
        force=config.force,
    )
    return GDE(
        encoder=GraphConvEncoder(features, width, "relu", config.input_dropout),
        flow=one_step_flow(Controlled(inside, width, how="concat"), **_flow(config)),
        readout=GraphConvReadout(width, classes, config.readout_dropout),
        t1=config.t1,
    )


def _gcnii(config: "NodeClassification", features: int, classes: int) -> nn.Module:
    """The flow of GCNII between linear layers, which see no graph."""
    width = config.hidden
    field: nn.Module = GCNIIField(
        width,
        config.alpha,
        config.mixing,
        dropout=config.field_dropout,
        layers=config.layers,
        t1=config.t1,
        redraw=config.redraw,
        force=config.force,
    )
    if config.depth_terms:
        field = DepthVarying(field, config.depth_terms, t1=config.t1)
    return GDE(
        encoder=LinearEncoder(features, width, "relu", config.input_dropout),
        flow=one_step_flow(field, **_flow(config)),
        readout=LinearReadout(width, classes, config.readout_dropout),
        t1=config.t1,
    )


def _diffusion(config: "NodeClassification", features: int, classes: int) -> nn.Module:
    """Logits of each node by itself, which diffuse; what passes a node's gate on the way counts."""
    return GDE(
        encoder=_glorot(
            MLP(
                features,
                config.hidden,
                classes,
                layers=config.layers,
                dropout=[config.input_dropout] + [config.readout_dropout] * (config.layers - 1),
                node_dropout=config.node_dropout,
            )
        ),
        flow=one_step_flow(
            PathGate(PageRankField(classes, config.alpha), classes), **_flow(config)
        ),
        t1=config.t1,
    )


def _glorot(model: nn.Module) -> nn.Module:
    """Weights as Glorot and Bengio (2010) have them, biases of zero."""
    for parameter in model.parameters():
        if parameter.ndim == 2:
            nn.init.xavier_uniform_(parameter)
        else:
            nn.init.zeros_(parameter)
    return model


def _discrete(config: "NodeClassification") -> dict[str, Any]:
    return {
        "input_dropout": config.input_dropout,
        "hidden_dropout": config.field_dropout,
        "readout_dropout": config.readout_dropout,
    }


def _flow(config: "NodeClassification") -> dict[str, Any]:
    return {
        "solver": config.solver,
        "rtol": config.rtol,
        "atol": config.atol,
        "control": CONTROLS[config.control],
        "num_steps": config.num_steps,
        "gradient": config.gradient,
    }
