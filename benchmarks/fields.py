"""Everything measured of graphs and fields, by one command.

    python benchmarks/fields.py --device cpu                      all of it
    python benchmarks/fields.py --device cuda --only growth       one of it
    python benchmarks/fields.py --device cuda --out results       results/growth-cuda.json …

Each benchmark is a script of its own, which says what it does: `propagate` and `attention` against
PyG, `growth` of the sparse product with the graph, `masks` against torch's dropout. The last line
is one JSON object with the result of each.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import attention
import growth
import masks
import propagate
from measure import machine, run_parts, write

BENCHMARKS: dict[str, Any] = {
    "propagate": propagate,
    "attention": attention,
    "growth": growth,
    "masks": masks,
}


def main() -> None:
    """Run the chosen benchmarks; each is said, and written, as it is done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", choices=list(BENCHMARKS), action="append", help="what to run")
    parser.add_argument("--out", type=Path, help="a folder to write each result to")
    arguments = parser.parse_args()
    device = arguments.device
    found: dict[str, Any] = {"benchmark": "fields", "machine": machine(device)}
    for name in arguments.only or BENCHMARKS:
        module = BENCHMARKS[name]
        found[name] = run_parts(name, module.FACTS, module.PARTS, module.DEFAULT, device)
        if arguments.out:
            write(found[name], arguments.out / f"{name}-{device.split(':')[0]}.json")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
