"""Where a result comes from: versions, device, date."""

import datetime
import importlib.metadata
import os
import platform
from typing import Any

import torch

from graphode.ensembles import programs_beside


def provenance(device: torch.device) -> dict[str, Any]:
    """What to write beside every number."""
    try:
        version = importlib.metadata.version("graphode")
    except importlib.metadata.PackageNotFoundError:
        version = "source"
    name = platform.processor() or platform.machine()
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else name,
        "cores": os.cpu_count(),
        "programs": programs_beside(),  # where there are more, seconds are longer than alone
        "python": platform.python_version(),
        "versions": {"graphode": version, "torch": torch.__version__},
    }
