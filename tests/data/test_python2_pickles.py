"""The pickle reader returns numbers and runs nothing."""

import collections
import contextlib
import io
import os
import pickle
import pickletools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_arrays
from scipy.sparse import csr_matrix, random_array

from graphode.data.planetoid import planetoid
from graphode.data.python2_pickles import ForbiddenPickleError, read_pickle
from tests.data.planetoid_files import array, pickled, sparse, write_planetoid


class Calls:
    """Pickled, it asks its reader to call something."""

    def __init__(self, function, *arguments):
        self.reduced = (function, arguments)

    def __reduce__(self):
        return self.reduced


@given(
    numpy_arrays.arrays(
        st.sampled_from([np.float32, np.float64, np.int32, np.int64, np.uint8]),
        numpy_arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4),
    ),
    st.sampled_from([2, 3, 4, 5]),
)
def test_arrays_of_python_3_come_back(values, protocol):
    # Protocol 5 writes buffers by another name, which is not needed and not admitted.
    content = pickle.dumps(values, protocol=min(protocol, 4))
    np.testing.assert_array_equal(read_pickle(content, "file"), values)


def test_arrays_by_columns_come_back():
    values = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(read_pickle(pickle.dumps(values, protocol=2), "file"), values)


def test_arrays_of_python_2_come_back():
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(read_pickle(pickled(array(values)), "file"), values)
    matrix = csr_matrix(values)
    assert (read_pickle(pickled(sparse(matrix)), "file") != matrix).nnz == 0


def test_lists_and_dictionaries_come_back():
    neighbors = collections.defaultdict(list, {0: [1, 2], 2: []})
    for protocol in range(5):
        assert read_pickle(pickle.dumps(neighbors, protocol), "file") == {0: [1, 2], 2: []}


def test_sparse_matrices_of_python_3_come_back():
    matrix = csr_matrix(random_array((5, 7), density=0.3, rng=np.random.default_rng(0)))
    found = read_pickle(pickle.dumps(matrix, protocol=2), "file")
    np.testing.assert_array_equal(found.toarray(), matrix.toarray())


@pytest.mark.parametrize("part", ["x", "y", "tx", "ty", "allx", "ally", "graph"])
def test_a_pickle_that_runs_code_does_not_run_it(tmp_path, part):
    write_planetoid(tmp_path)
    trace = tmp_path / "it ran"
    bad = pickle.dumps(Calls(os.mkdir, str(trace)), protocol=2)
    (tmp_path / f"ind.tiny.{part}").write_bytes(bad)
    with pytest.raises(
        ForbiddenPickleError, match=rf"ind\.tiny\.{part} is refused.*mkdir.*[Nn]othing"
    ):
        planetoid("tiny", tmp_path, verify=False)
    assert not trace.exists()
    pickle.loads(bad)
    assert trace.exists(), "the ordinary reader runs it: the test would notice"


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Calls(eval, "1"), "eval"),
        (Calls(os.system, "true"), "system"),
        (Calls(getattr, 1, "real"), "getattr"),
        (Calls(io.open, "x"), "open"),
        (np.random.default_rng, "default_rng"),
        (np.float64(1.0), "scalar"),
        (range(3), "range"),
        (complex(1, 2), "complex"),
    ],
)
def test_any_other_name_is_refused_by_name(value, name):
    for protocol in (0, 2, 4):
        with pytest.raises(ForbiddenPickleError, match=name):
            read_pickle(pickle.dumps(value, protocol=protocol), "file")


@pytest.mark.parametrize(
    "values", [np.array([1, "a"], object), np.array(["a"]), np.zeros(2, "i,f")]
)
def test_arrays_of_objects_text_and_records_are_refused(values):
    with pytest.raises(ForbiddenPickleError, match=r"plain numbers|array of objects"):
        read_pickle(pickle.dumps(values, protocol=2), "file")


def test_text_in_other_encodings_is_refused():
    body = b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R"
    with pytest.raises(ForbiddenPickleError, match="rot13"):
        read_pickle(pickled(body), "file")


def test_an_array_that_lies_about_its_size_is_refused():
    content = pickled(array(np.zeros((2, 3), np.float32)))
    lying = content.replace(b"J\x03\x00\x00\x00", b"J\x00\x00\x00\x7f")
    with pytest.raises(ForbiddenPickleError, match="another size"):
        read_pickle(lying, "file")


def test_a_sparse_matrix_with_columns_outside_is_refused():
    matrix = csr_matrix(np.eye(3, dtype=np.float32))
    matrix.indices[1] = 50
    with pytest.raises(ValueError, match="cannot be read"):
        read_pickle(pickled(sparse(matrix)), "file")


def test_a_pickle_of_nothing_useful_is_refused():
    with pytest.raises(ValueError, match=r"must hold an array.*holds a int"):
        read_pickle(pickle.dumps(1), "file")
    with pytest.raises(ValueError, match=r"file cannot be read as a pickle.*cut short"):
        read_pickle(pickled(array(np.zeros(2, np.float32)))[:-5], "file")


@given(st.data())
def test_a_cut_or_flipped_pickle_is_an_error_or_plain_data(data):
    content = pickled(sparse(csr_matrix(np.eye(3, dtype=np.float32))))
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        broken = content[:place]
    else:
        broken = bytearray(content)
        broken[place] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(ValueError):
        value = read_pickle(bytes(broken), "file")
        assert isinstance(value, np.ndarray | csr_matrix | list | dict)


def test_the_written_pickles_name_what_the_real_ones_name(data_root, tmp_path):
    write_planetoid(tmp_path)

    def names(content: bytes) -> set[str]:
        return {arg for op, arg, _ in pickletools.genops(content) if op.name == "GLOBAL"}

    for part in ("x", "ty", "graph"):
        real = (data_root / "cora" / f"ind.cora.{part}").read_bytes()
        assert names(real) == names((tmp_path / f"ind.tiny.{part}").read_bytes())
