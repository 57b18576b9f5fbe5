"""What the tests of flows share."""

from collections.abc import Iterator

import jaxtyping
import pytest


@pytest.fixture
def without_type_checks() -> Iterator[None]:
    """Switch off the checks added in tests.

    For what they make slow (thousands of steps), what torch cannot trace, and errors of ours that
    they would anticipate.
    """
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
