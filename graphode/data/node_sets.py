"""The front door: any node classification data set by its name."""

from pathlib import Path

from graphode.data import npz_graphs
from graphode.data.cora_linqs import cora_linqs
from graphode.data.node_data import NodeData
from graphode.data.planetoid import PUBLISHED as PLANETOID
from graphode.data.planetoid import planetoid
from graphode.data.splits import random_split

NODE_SETS = (*PLANETOID, "cora_linqs", *npz_graphs.PUBLISHED)


def load_node_data(
    name: str,
    root: Path | str | None = None,
    split: str | int | None = None,
    seed: int = 0,
    normalize_features: bool = True,
    allow_download: bool = True,
) -> NodeData:
    """A graph with features, labels and a split.

        data = load_node_data("cora_linqs")             # inside the package
        data = load_node_data("cora", root="data")      # public split
        data = load_node_data("cora", split="random", seed=3)
        data = load_node_data("texas", split=7)

    Args:
        name: One of `NODE_SETS`.
        root: A folder with the data; without it, the environment variable GRAPHODE_DATA, the
            user's cache, and the public source are tried, in this order.
        split: None for the data set's own: "public" (cora, citeseer, pubmed), "authors"
            (cora_linqs), 0 to 9 (texas). "random" draws one by `seed`: 20 nodes of each class,
            then 500 and 1000 of any (the citation graphs), or 30 of each class and the rest
            (amazon_photo, coauthor_physics, which have no other).
        seed: Of a random split.
        normalize_features: Whether each row of features is divided by its sum.
        allow_download: Whether files that are nowhere are fetched from their public source.
    """
    own = own_splits(name)
    if split is not None and split not in own:
        raise ValueError(
            f"{name} has no split {split!r}. Choose one of: {', '.join(map(str, own))}; or draw "
            "one with `random_split` and use `data.with_split`."
        )
    chosen = own[0] if split is None else split
    if name == "texas":
        return npz_graphs.texas(root, int(chosen), normalize_features, allow_download)
    if name in npz_graphs.PUBLISHED:
        return npz_graphs.shchur(name, root, seed, normalize_features, allow_download)
    if name == "cora_linqs":
        data = cora_linqs(normalize_features)
    else:
        data = planetoid(name, root, normalize_features, allow_download=allow_download)
    return data if chosen != "random" else data.with_split(random_split(data.labels, seed=seed))


def own_splits(name: str) -> tuple[str | int, ...]:
    """What `split` may be for this data set; the first is the default."""
    if name in PLANETOID:
        return ("public", "random")
    if name == "cora_linqs":
        return ("authors", "random")
    if name == "texas":
        return tuple(range(npz_graphs.NUM_TEXAS_SPLITS))
    if name in npz_graphs.PUBLISHED:
        return ("random",)
    raise ValueError(f"Unknown data set {name!r}. Choose one of: {', '.join(NODE_SETS)}.")
