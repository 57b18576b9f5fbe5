"""Recording a program: what happens around it."""

import gc
import weakref

import pytest

from graphode.flows.capture import _without_collection


@pytest.fixture(autouse=True)
def as_before():
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


@pytest.mark.parametrize("enabled", [True, False])
def test_nothing_is_collected_while_a_program_is_recorded(enabled):
    (gc.enable if enabled else gc.disable)()
    with _without_collection():
        assert not gc.isenabled()
    assert gc.isenabled() is enabled


def test_collection_goes_on_after_a_recording_that_failed():
    gc.enable()
    with pytest.raises(RuntimeError, match="no"), _without_collection():
        raise RuntimeError("no")
    assert gc.isenabled()


def test_what_is_no_longer_needed_is_freed_before_a_recording():
    class Program:
        pass

    freed = []
    program = Program()
    program.itself = program  # a cycle, which only the collector finds
    gc.disable()
    weakref.finalize(program, freed.append, True)
    del program
    assert not freed
    with _without_collection():
        assert freed
