"""Make `cora_linqs.npz` from the two text files of the LINQS group.

    python -m graphode.data.embedded.pack_cora_linqs FOLDER [OUT]

FOLDER holds `cora.content` (one paper a line: number, 1433 zeros and ones, class; also gzipped) and
`cora.cites` (cited, citing). Papers keep their order. Every array is of plain numbers or text, so
that it loads with `allow_pickle=False`.
"""

import gzip
import sys
from pathlib import Path

import numpy as np


def pack(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of the npz.

    `words` holds the columns of each paper's ones, paper after paper, as differences (which
    compress better); `word_counts` how many each has; `edges` each pair of papers that cite each
    other once.
    """
    compressed = folder / "cora.content.gz"
    raw = (
        gzip.decompress(compressed.read_bytes())
        if compressed.exists()
        else (folder / "cora.content").read_bytes()
    )
    rows = [line.split() for line in raw.decode("ascii").splitlines()]
    papers = np.array([int(row[0]) for row in rows], np.int32)
    ones = np.array([row[1:-1] for row in rows]) == "1"
    class_names, labels = np.unique([row[-1] for row in rows], return_inverse=True)
    words = [np.flatnonzero(row) for row in ones]
    place = {paper: node for node, paper in enumerate(papers.tolist())}
    cites = (folder / "cora.cites").read_text(encoding="ascii").split()
    ends = np.array([place[int(paper)] for paper in cites]).reshape(-1, 2)
    ends = np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1)
    return {
        "papers": papers,
        "words": np.concatenate([np.diff(row, prepend=0) for row in words]).astype(np.uint16),
        "word_counts": np.array([len(row) for row in words], np.uint8),
        "num_words": np.array(ones.shape[1], np.int32),
        "labels": labels.astype(np.uint8),
        "class_names": class_names,
        "edges": np.unique(ends, axis=0).astype(np.uint16),
    }


if __name__ == "__main__":
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).with_name("cora_linqs.npz")
    np.savez_compressed(out, allow_pickle=False, **pack(Path(sys.argv[1])))
    print(f"{out}: {out.stat().st_size} bytes")
