"""`graph.propagate` against PyG's message passing: time and memory, forward and backward.

    python benchmarks/propagate.py --device cpu             time and memory
    python benchmarks/propagate.py --only kernels           the kernels PyTorch has for the product

Two random undirected graphs under 64 channels: one of Cora's size with popular nodes as citations
have, one of 100 000 nodes and 2 000 000 directed edges; both normalised as in a GCN. The rival is
`GCNConv.propagate` with the normalised weights given, so that neither side pays for that;
`pyg_spmm` is PyG fed a sparse matrix instead, for the record. The sides take turns; times are
medians after warm-up. Peak memory is measured in fresh processes, above that of the inputs. The
last line is one JSON object.
"""

from collections.abc import Callable
from typing import Any

import torch
from measure import in_fresh_process, peak_memory_mib, script, side_by_side
from torch import Tensor
from torch_geometric.nn import GCNConv
from torch_geometric.utils import spmm

from graphode.graphs import Graph

CHANNELS = 64
SIZES = {"cora_size": (2_708, 10_556), "large": (100_000, 2_000_000)}
Product = Callable[[Tensor], Tensor]


def random_graph(name: str, device: str) -> Graph:
    """A random undirected graph of a named size, GCN-normalised."""
    nodes, edges = SIZES[name]
    generator = torch.Generator().manual_seed(0)
    popularity = torch.arange(1.0, nodes + 1) ** (-0.5 if name == "cora_size" else 0.0)
    codes = torch.empty(0, dtype=torch.int64)
    while len(codes) < edges // 2:
        ends = torch.multinomial(popularity, 2 * edges, replacement=True, generator=generator)
        low, high = ends.view(2, -1).sort(0)[0]
        codes = torch.cat([codes, (low * nodes + high)[low != high]]).unique()
    codes = codes[torch.randperm(len(codes), generator=generator)[: edges // 2]]
    links = torch.randperm(nodes, generator=generator)[torch.stack([codes // nodes, codes % nodes])]
    edge_index = torch.cat([links, links.flip(0)], 1)
    return Graph(edge_index, num_nodes=nodes).to(device).normalize("sym")


def contenders(graph: Graph) -> dict[str, Product]:
    """The same product by three ways."""
    convolution = GCNConv(CHANNELS, CHANNELS).to(graph.device)
    edge_index, weight = graph.edge_index, graph.edge_weight
    size = (graph.num_nodes, graph.num_nodes)
    matrix = torch.sparse_coo_tensor(edge_index.flip(0), weight, size).coalesce().to_sparse_csr()
    return {
        "graphode": graph.propagate,
        "pyg": lambda h: convolution.propagate(edge_index, x=h, edge_weight=weight),
        "pyg_spmm": lambda h: spmm(matrix, h),
    }


def states(graph: Graph) -> tuple[Tensor, Tensor]:
    """A state that wants a gradient, and a cotangent."""
    shape = (graph.num_nodes, CHANNELS)
    h = torch.randn(shape, device=graph.device, requires_grad=True)
    return h, torch.randn(shape, device=graph.device)


def forward_and_backward(
    product: Product, h: Tensor, cotangent: Tensor, linear: torch.nn.Linear | None = None
) -> Callable[[], object]:
    """One training step's worth of a product, with a linear layer before it if given."""
    if linear is None:
        return lambda: torch.autograd.grad(product(h), h, cotangent)
    inputs = [h, *linear.parameters()]
    return lambda: torch.autograd.grad(product(linear(h)), inputs, cotangent)


def time(device: str) -> dict[str, Any]:
    """Milliseconds of forward + backward, alone and with a linear layer on both sides."""
    found: dict[str, Any] = {}
    for name in SIZES:
        graph = random_graph(name, device)
        h, cotangent = states(graph)
        linear = torch.nn.Linear(CHANNELS, CHANNELS, device=device)
        sides = contenders(graph)
        alone = {side: forward_and_backward(sides[side], h, cotangent) for side in sides}
        layer = {
            side: forward_and_backward(sides[side], h, cotangent, linear)
            for side in ("graphode", "pyg")
        }
        repeats = 50 if name == "cora_size" or device != "cpu" else 5
        for what, runs in ((name, alone), (f"{name}_with_linear", layer)):
            found[f"{what}_ms"] = side_by_side(runs, device, repeats)
            found[f"{what}_speedup_over_pyg"] = (
                found[f"{what}_ms"]["pyg"] / found[f"{what}_ms"]["graphode"]
            )
    return found


def memory(device: str) -> dict[str, Any]:
    """Peak memory of forward + backward on the large graph, each side in its own process."""
    found = {
        side: in_fresh_process(__file__, "--device", device, "--one-memory", side)["mib"]
        for side in ("graphode", "pyg")
    }
    return {"large_mib": found, "large_share_of_pyg": found["graphode"] / found["pyg"]}


def one_memory(device: str, side: str) -> dict[str, float]:
    """Peak memory of one side above its inputs: graph, state, cotangent."""
    # What is loaded once per process is no part of a product.
    small = random_graph("cora_size", device)
    forward_and_backward(contenders(small)[side], *states(small))()
    graph = random_graph("large", device)
    return {
        "mib": peak_memory_mib(
            forward_and_backward(contenders(graph)[side], *states(graph)), device
        )
    }


def kernels(device: str) -> dict[str, Any]:
    """Milliseconds of one product, forward, by the kernels that PyTorch has."""
    found = {}
    for name in SIZES:
        graph = random_graph(name, device)
        for dtype in (torch.float32, torch.float64):
            runs = kernels_of(graph, dtype)
            repeats = 30 if name == "cora_size" or device != "cpu" else 3
            found[f"{name}_{str(dtype)[6:]}_ms"] = side_by_side(runs, device, repeats)
    return found


def kernels_of(graph: Graph, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    """One product of a graph and a state, by every kernel."""
    source, target = graph.edge_index
    crow, col = graph._pattern.places[:2]
    values, weight = graph._operands(dtype)[0], graph.edge_weight.to(dtype)[:, None]
    h = torch.randn(graph.num_nodes, CHANNELS, device=graph.device, dtype=dtype)
    size = (graph.num_nodes, graph.num_nodes)
    csr = torch.sparse_csr_tensor(crow, col, values, size)
    csr_int64 = torch.sparse_csr_tensor(crow.long(), col.long(), values, size)
    coo = csr_int64.to_sparse_coo()
    bag = torch.nn.functional.embedding_bag
    runs = {
        "graphode": lambda: graph.propagate(h),
        "csr": lambda: csr @ h,
        "csr_int64": lambda: csr_int64 @ h,
        "coo": lambda: coo @ h,
        "embedding_bag": lambda: bag(
            col, h, crow, mode="sum", per_sample_weights=values, include_last_offset=True
        ),
        "gather_scatter": lambda: torch.zeros_like(h).index_add_(0, target, h[source] * weight),
    }
    if graph.device.type == "cpu":  # PyTorch has it nowhere else
        runs["csr_reduce"] = lambda: torch.sparse.mm(csr, h, "sum")
    return runs


FACTS = {
    "channels": CHANNELS,
    "goals": {
        "cora_size_speedup_over_pyg": {"cpu": 4},
        "cora_size_with_linear_speedup_over_pyg": {"cpu": 2},
        "large_speedup_over_pyg": {"cpu": 8, "cuda": 5},
        "large_share_of_pyg": {"cpu": 0.25, "cuda": 0.25},
    },
}
PARTS = {"time": time, "memory": memory, "kernels": kernels}
DEFAULT = ("time", "memory")

if __name__ == "__main__":
    script(__doc__, "propagate", FACTS, PARTS, DEFAULT, one_memory)
