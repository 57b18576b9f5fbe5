"""How every benchmark measures: side by side in one process, medians, and said hardware."""

import argparse
import datetime
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from graphode.experiments.provenance import processor


def side_by_side(
    runs: dict[str, Callable[[], object]], device: str, repeats: int = 30, warmup: int = 3
) -> dict[str, float]:
    """Median milliseconds of each run; the runs take turns, so that noise falls on all."""

    def wait() -> None:
        if device.startswith("cuda"):
            torch.cuda.synchronize()

    for run in runs.values():
        for _ in range(warmup):
            run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            wait()
            start = time.perf_counter()
            run()
            wait()
            seconds[name].append(time.perf_counter() - start)
    return {name: 1e3 * statistics.median(values) for name, values in seconds.items()}


def peak_memory_mib(run: Callable[[], object], device: str) -> float:
    """Peak memory of `run` above what the process (or the device) held before it."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    gc.collect()
    # Linux forgets the highest resident set on request, so that a warm-up does not count.
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    run()
    return (_resident("VmHWM") - before) / 2**10


def _resident(field: str) -> int:
    """A figure of this process in KiB: VmRSS now, or VmHWM at its highest."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def in_fresh_process(script: str, *arguments: str) -> dict[str, Any]:
    """Run `script` with `arguments` by itself; its last line is a JSON object."""
    # Large blocks go back to the system when freed, so that the resident set is what is in use.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, script, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


Part = Callable[[str], dict[str, Any]]


def run_parts(
    name: str, facts: dict[str, Any], parts: dict[str, Part], chosen: Iterable[str], device: str
) -> dict[str, Any]:
    """A whole result: which benchmark, where, and what each chosen part found, said as it comes."""
    found: dict[str, Any] = {"benchmark": name, "machine": machine(device), **facts}
    for part in chosen:
        print(f"{name}: {part} …", file=sys.stderr, flush=True)
        found[part] = parts[part](device)
        print(json.dumps(found[part], indent=2), file=sys.stderr, flush=True)
    return found


def script(
    doc: str | None,
    name: str,
    facts: dict[str, Any],
    parts: dict[str, Part],
    default: Iterable[str],
    one_memory: Callable[..., dict[str, Any]] | None = None,
) -> None:
    """The command line of a benchmark: its parts, on a device; the last line is the result."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", choices=list(parts), action="append", help="parts to run")
    parser.add_argument("--out", type=Path, help="also write the JSON object to this file")
    parser.add_argument("--one-memory", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one_memory and one_memory is not None:
        print(json.dumps(one_memory(arguments.device, *arguments.one_memory.split(":"))))
        return
    found = run_parts(name, facts, parts, arguments.only or default, arguments.device)
    if arguments.out:
        write(found, arguments.out)
    print(json.dumps(found))


def write(found: Any, path: Path) -> None:
    """A result to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")


def machine(device: str) -> dict[str, Any]:
    """Hardware, versions and date, to stand beside every number."""
    found = {
        "date": datetime.date.today().isoformat(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "device": device,
    }
    if device.startswith("cuda"):
        found["gpu"] = torch.cuda.get_device_name()
    return found
