"""What the tests of models share."""

from collections.abc import Iterator

import jaxtyping
import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small graphs gain nothing from threads, which wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def without_type_checks() -> Iterator[None]:
    """Switch off the checks added in tests, where they would anticipate our own errors."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
