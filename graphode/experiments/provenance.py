"""Where a result comes from: versions, device, date."""

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import torch

from graphode.ensembles import programs_beside


def provenance(device: torch.device) -> dict[str, Any]:
    """What to write beside every number."""
    try:
        version = importlib.metadata.version("graphode")
    except importlib.metadata.PackageNotFoundError:
        version = "source"
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
        "cores": os.cpu_count(),
        "programs": programs_beside(),  # where there are more, seconds are longer than alone
        "python": platform.python_version(),
        "versions": {"graphode": version, "torch": torch.__version__},
    }


def processor() -> str:
    """What the CPU calls itself."""
    facts = Path("/proc/cpuinfo")  # where there is none, Python knows a name; on Linux it does not
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
