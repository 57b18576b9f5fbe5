"""Tiny `ind.NAME.*` files, written opcode by opcode as Python 2 wrote the real ones."""

import struct
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

CODES = {np.dtype("float32"): b"f4", np.dtype("int32"): b"i4", np.dtype("float64"): b"f8"}


def pickled(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


def integer(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def text(value: bytes) -> bytes:
    return b"T" + struct.pack("<i", len(value)) + value


def array(values: np.ndarray) -> bytes:
    dtype = b"cnumpy\ndtype\n" + b"U\x02" + CODES[values.dtype] + b"K\x00K\x01\x87R"
    dtype += b"(K\x03U\x01<NNN" + integer(-1) + integer(-1) + b"K\x00tb"
    shape = b"(" + b"".join(map(integer, values.shape)) + b"t"
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return empty + b"(K\x01" + shape + dtype + b"\x89" + text(values.tobytes()) + b"tb"


def sparse(matrix: csr_matrix) -> bytes:
    rows, columns = matrix.shape
    items = {
        b"_shape": b"(" + integer(rows) + integer(columns) + b"t",
        b"maxprint": b"K2",
        b"indptr": array(matrix.indptr.astype(np.int32)),
        b"indices": array(matrix.indices.astype(np.int32)),
        b"data": array(matrix.data.astype(np.float32)),
    }
    state = b"}(" + b"".join(text(key) + value for key, value in items.items()) + b"u"
    return b"cscipy.sparse.csr\ncsr_matrix\n)\x81" + state + b"b"


def neighbor_lists(neighbors: dict[int, list[int]]) -> bytes:
    items = b"".join(
        integer(node) + b"](" + b"".join(map(integer, others)) + b"e"
        for node, others in neighbors.items()
    )
    return b"ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(" + items + b"u"


def write_planetoid(folder: Path, name: str = "tiny") -> dict[str, np.ndarray]:
    """Write the eight files; returns what a reader should find.

    Ten nodes, two of them for training (0 and 1), 2 to 5 in `allx` besides, tests 8, 6 and 9 in
    this order; number 7 is left out, as 15 are in Citeseer. The lists hold a self-loop and edges
    given twice.
    """
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    features = (random.random((10, 4)) < 0.6).astype(np.float32)
    features[3] = 0  # a paper without words
    features[7] = 0
    labels = np.array([0, 1, 0, 1, 1, 0, 0, -1, 1, 0])
    one_hot = np.eye(2, dtype=np.int32)[labels]
    test = [8, 6, 9]
    neighbors = {0: [1, 1, 2], 1: [0], 2: [0, 2], 3: [4], 4: [3, 8], 5: [], 6: [9], 8: [4], 9: [6]}
    content = {
        "x": sparse(csr_matrix(features[:2])),
        "y": array(one_hot[:2]),
        "allx": sparse(csr_matrix(features[:6])),
        "ally": array(one_hot[:6]),
        "tx": sparse(csr_matrix(features[test])),
        "ty": array(one_hot[test]),
        "graph": neighbor_lists(neighbors),
    }
    for part, body in content.items():
        (folder / f"ind.{name}.{part}").write_bytes(pickled(body))
    (folder / f"ind.{name}.test.index").write_text("".join(f"{node}\n" for node in test))
    adjacency = np.zeros((10, 10))
    for node, other in [(0, 1), (0, 2), (3, 4), (4, 8), (6, 9)]:
        adjacency[node, other] = adjacency[other, node] = 1
    return {"features": features, "labels": labels, "adjacency": adjacency}
