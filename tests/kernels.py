"""Where the GPU's kernels can run: on a GPU, or on a CPU by Triton's interpreter.

That is, if Triton is installed and TRITON_INTERPRET=1 is set.
"""

import importlib.util
import os

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None
    or (DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1"),
    reason="no Triton here, or no GPU",
)
