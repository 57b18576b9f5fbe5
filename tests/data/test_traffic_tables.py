"""Tables of speeds and of distances, as users have them."""

import numpy as np
import pandas as pd
import pytest
import torch

from graphode.data import read_distances, read_speeds, shortest_paths, traffic_graph
from graphode.data.distance_tables import STGCN_BANDWIDTH

SPEEDS = np.array([[60.5, 1, 2], [61, 3, 4], [62, 5, 6], [63, 7, 8]])
DATES = pd.date_range("2024-03-04 06:00", periods=4, freq="10min")


def write(path, text: str):
    path.write_text(text)
    return path


def test_a_csv_of_numbers_alone(tmp_path):
    np.savetxt(tmp_path / "v.csv", SPEEDS, delimiter=",")
    series = read_speeds(tmp_path / "v.csv")
    np.testing.assert_array_equal(series.speeds, SPEEDS)
    assert series.times.tolist() == [0, 1, 2, 3]
    assert series.steps_per_day == 288


@pytest.mark.parametrize("names", [["a", "b", "c"], ["401", "402", "403"]])
@pytest.mark.parametrize("corner", ["timestamp", ""])
def test_a_csv_with_names_and_dates(tmp_path, names, corner):
    table = pd.DataFrame(SPEEDS, columns=names)
    table.insert(0, corner, DATES)
    table.to_csv(tmp_path / "v.csv", index=False)
    series = read_speeds(tmp_path / "v.csv")
    np.testing.assert_array_equal(series.speeds, SPEEDS)
    assert series.times.tolist() == [36, 37, 38, 39], "10-minute intervals since midnight"
    assert series.steps_per_day == 144


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("0,1,2", "counts the columns"),  # as pandas heads an array
        ("1,2,3", "counts the columns"),
        ("401210,401211,400017", "is far larger than all below it"),
    ],
)
def test_a_first_line_of_numbers_that_name_sensors_is_not_taken_for_speeds(tmp_path, head, why):
    path = write(tmp_path / "v.csv", f"{head}\n60,61,62\n63,64,65\n")
    with pytest.raises(ValueError, match=rf"{', '.join(head.split(','))}, {why}.* Delete it"):
        read_speeds(path)
    path = write(tmp_path / "v.csv", f"a,b,c\n{head}\n60,61,62\n63,64,65\n")
    assert read_speeds(path).num_steps == 3, "as the error says, of speeds"


def test_names_without_dates_and_dates_without_names(tmp_path):
    path = write(tmp_path / "v.csv", "a,b\n1,2\n3,4\n")
    assert read_speeds(path).speeds.tolist() == [[1, 2], [3, 4]]
    path = write(tmp_path / "w.csv", "2024-01-01 00:00,1\n2024-01-01 00:05,2\n")
    assert read_speeds(path).speeds.tolist() == [[1], [2]]


def test_hours_that_are_missing_are_gaps(tmp_path):
    path = write(
        tmp_path / "v.csv",
        "t,a\n2024-01-01 23:50,1\n2024-01-01 23:55,2\n2024-01-02 00:00,3\n2024-01-02 02:00,4\n",
    )
    series = read_speeds(path)
    assert series.times.tolist() == [286, 287, 288, 312]
    assert series.days.tolist() == [0, 0, 1, 1]
    assert read_speeds(path, interval_minutes=10).times.tolist() == [143, 143.5, 144, 156]


def test_an_npz_by_key_channel_and_scale(tmp_path):
    tenths = (SPEEDS * 10).astype(np.uint16)
    np.savez(tmp_path / "one.npz", speed_x10=tenths)
    np.testing.assert_allclose(read_speeds(tmp_path / "one.npz", scale=0.1).speeds, SPEEDS)
    np.savez(tmp_path / "two.npz", data=np.stack([SPEEDS * 0, SPEEDS * 2, SPEEDS], -1), other=1)
    series = read_speeds(tmp_path / "two.npz", key="data", channel=2)
    np.testing.assert_array_equal(series.speeds, SPEEDS)
    with pytest.raises(ValueError, match="data, other, but no `key`"):
        read_speeds(tmp_path / "two.npz")
    with pytest.raises(ValueError, match="not 'speeds'"):
        read_speeds(tmp_path / "two.npz", key="speeds")
    for channel in (3, -1):
        with pytest.raises(ValueError, match=rf"channels 0 to 2, but `channel` is {channel}\."):
            read_speeds(tmp_path / "two.npz", key="data", channel=channel)


def test_of_several_channels_one_is_to_be_chosen(tmp_path):
    """The published PEMS08.npz has the flow first."""
    np.savez(tmp_path / "v.npz", data=np.stack([SPEEDS * 9, SPEEDS * 0, SPEEDS], -1))
    with pytest.raises(ValueError, match=r"3 channels, .*from 0 to 2 with --channel .*`channel=`"):
        read_speeds(tmp_path / "v.npz")
    np.testing.assert_array_equal(read_speeds(tmp_path / "v.npz", channel=2).speeds, SPEEDS)
    np.savez(tmp_path / "one.npz", data=SPEEDS[:, :, None])
    np.testing.assert_array_equal(read_speeds(tmp_path / "one.npz").speeds, SPEEDS)


def test_a_channel_that_there_is_not_to_choose_is_refused(tmp_path):
    np.savez(tmp_path / "flat.npz", data=SPEEDS)
    with pytest.raises(ValueError, match=r"channel 0 .* shape \[4, 3\]. Leave out --channel"):
        read_speeds(tmp_path / "flat.npz", channel=0)
    np.savetxt(tmp_path / "v.csv", SPEEDS, delimiter=",")
    for chosen in ({"key": "data"}, {"channel": 0}):
        with pytest.raises(ValueError, match=r"an npz, but v.csv is none. Leave them out"):
            read_speeds(tmp_path / "v.csv", **chosen)


def test_an_npz_that_is_damaged_or_none_is_refused(tmp_path):
    np.savez(tmp_path / "whole.npz", data=SPEEDS)
    content = (tmp_path / "whole.npz").read_bytes()
    np.save(tmp_path / "v.npy", SPEEDS)
    texts = {
        "cut": content[: len(content) // 2],
        "changed": content.replace(SPEEDS.tobytes(), (SPEEDS + 1).tobytes()),
        "npy": (tmp_path / "v.npy").read_bytes(),
        "text": b"a,b\n1,2\n",
        "empty": b"",
    }
    for name, held in texts.items():
        path = tmp_path / f"{name}.npz"
        path.write_bytes(held)
        with pytest.raises(ValueError, match=rf"{name}.npz is no npz of numbers, or is damaged"):
            read_speeds(path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((0, 3)), r"but is empty, of shape \[0, 3\]"),
        (np.zeros((50, 0)), r"but is empty, of shape \[50, 0\]"),
        (np.zeros((50, 3, 0)), r"but is empty, of shape \[50, 3, 0\]"),
        (np.array([["60", "fast"]]), "must hold real numbers, but holds <U4"),
        (SPEEDS + 1j, "must hold real numbers, but holds complex128"),
        (np.zeros(5), r"shape \[time, sensors\] or .*, but has shape \[5\]"),
    ],
)
def test_an_npz_of_something_else_is_refused(tmp_path, values, message):
    np.savez(tmp_path / "v.npz", data=values)
    with pytest.raises(ValueError, match=message):
        read_speeds(tmp_path / "v.npz")


@pytest.mark.parametrize("ending", ["CSV", "Npz"])
def test_endings_may_be_written_large(tmp_path, ending):
    if ending == "CSV":
        np.savetxt(tmp_path / "v.CSV", SPEEDS, delimiter=",")
    else:
        np.savez(tmp_path / "v.npz", data=SPEEDS)
        (tmp_path / "v.npz").rename(tmp_path / "v.Npz")
    np.testing.assert_array_equal(read_speeds(tmp_path / f"v.{ending}").speeds, SPEEDS)


def test_an_npz_with_a_pickle_is_refused(tmp_path):
    np.savez(tmp_path / "v.npz", data=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        read_speeds(tmp_path / "v.npz")


def test_a_parquet_file(tmp_path, monkeypatch):
    """Read by pandas, here without the library that reads the bytes."""
    table = pd.DataFrame(SPEEDS, index=pd.Index(DATES, name="time"))
    monkeypatch.setattr(pd, "read_parquet", lambda path: table)
    series = read_speeds(write(tmp_path / "v.parquet", ""))
    np.testing.assert_array_equal(series.speeds, SPEEDS)
    assert series.times.tolist() == [36, 37, 38, 39]


def test_without_pyarrow_the_error_says_so(tmp_path, monkeypatch):
    def unavailable(path):
        raise ImportError("pyarrow")

    monkeypatch.setattr(pd, "read_parquet", unavailable)
    with pytest.raises(ValueError, match=r"v\.parquet cannot be read without pyarrow"):
        read_speeds(tmp_path / "v.parquet")


def test_empty_cells_are_refused_or_masked(tmp_path):
    path = write(tmp_path / "v.csv", "a,b\n1,2\n3,\n5,6\n7,8\n")
    with pytest.raises(ValueError, match=r"sensor 'b' at line 3 .*--missing mask.*`missing="):
        read_speeds(path)
    series = read_speeds(path, missing="mask")
    assert series.observed is not None
    assert series.observed.tolist() == [[True, True], [True, False], [True, True], [True, True]]


def test_cells_of_blanks_alone_are_empty(tmp_path):
    path = write(tmp_path / "v.csv", "time, a, b\n2024-01-01 00:00, 1, 2\n2024-01-01 00:05,  , 4\n")
    series = read_speeds(path, missing="mask")
    assert series.observed is not None
    assert series.observed.tolist() == [[True, True], [False, True]]
    with pytest.raises(ValueError, match="sensor 'a' at 2024-01-01 00:05 has none"):
        read_speeds(path)
    with pytest.raises(ValueError, match="no empty cell"):
        read_distances(write(tmp_path / "w.csv", "from,to,length\n0,1,5\n1,2, \n"))
    with pytest.raises(ValueError, match="from 0 to 1 is empty or NaN"):
        read_distances(write(tmp_path / "w.csv", "0, \n5,0\n"))


@pytest.mark.parametrize("cell", ['" "', "-"])
def test_the_cell_that_is_no_number_is_named(tmp_path, cell):
    held = cell.strip('"')
    path = write(tmp_path / "v.csv", f"a,b\n1,2\n3,{cell}\n")
    with pytest.raises(ValueError, match=f"'b' .* in line 3 it holds '{held}'"):
        read_speeds(path, missing="mask")
    with pytest.raises(ValueError, match=f"third column, but holds '{held}'"):
        read_distances(write(tmp_path / "w.csv", f"from,to,length\n0,1,5\n1,2,{cell}\n"))
    with pytest.raises(ValueError, match=f"column 1 holds '{held}'"):
        read_distances(write(tmp_path / "w.csv", f"0,5\n5,{cell}\n"))


def test_rows_of_one_time_are_refused_or_averaged(tmp_path):
    path = write(
        tmp_path / "v.csv",
        "t,a,b\n2024-01-01 00:00,1,2\n2024-01-01 00:05,2,4\n2024-01-01 00:05,4,\n"
        "2024-01-01 00:10,5,6\n",
    )
    with pytest.raises(ValueError, match=r"2024-01-01 00:05 repeats .*--duplicates mean"):
        read_speeds(path, missing="mask")
    series = read_speeds(path, missing="mask", duplicates="mean")
    assert series.speeds.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert series.times.tolist() == [0, 1, 2]


def test_rows_out_of_order_are_refused(tmp_path):
    path = write(tmp_path / "v.csv", "t,a\n2024-01-01 00:05,1\n2024-01-01 00:00,2\n")
    with pytest.raises(ValueError, match=r"comes before the row before.*Sort"):
        read_speeds(path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("v.csv", "t,a\n2024-01-01,1\nnoon,2\n", "first column.*'noon' in line 3"),
        ("v.csv", "a,b\n1,2\n3,fast\n", "Column 'b'.*line 3 it holds 'fast'"),
        ("v.csv", "", r"v\.csv is empty.*commas"),
        ("v.csv", "t;a\n2024-01-01;1,5\n", r"v\.csv must have commas.*but has semicolons"),
        ("v.csv", "t\ta\n2024-01-01\t1\n", r"v\.csv must have commas.*but has tabs"),
        ("v.csv", "a,b\n1,2\n1,2,3\n", r"v\.csv is no table.*same number of cells"),
        ("v.csv", "a,b\n2024-01-01,1,2\n", r"v\.csv is no table.*same number of cells"),
        ("v.csv", "t\n2024-01-01\n", "must hold speeds"),
        ("v.csv", "time,a,b\n", r"v\.csv must hold speeds.*no row"),
        ("v.csv", "time,sensor,value\n", r"v\.csv must hold speeds.*no row"),
        ("v.csv", "t,a,b\n2024-01-01,1,\n", "sensor 'b' at 2024-01-01 00:00"),
        ("v.csv", "t,a,b\n2024-01-01,1,x\n", "Column 'b'.*the row of 2024-01-01 00:00"),
        ("v.xls", "", r"one of \.csv, \.npz and \.parquet.*'\.xls'"),
    ],
)
def test_tables_of_something_else_are_refused(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=message):
        read_speeds(write(tmp_path / name, text))


def test_a_list_of_roads_is_a_matrix(tmp_path):
    path = write(tmp_path / "d.csv", "from,to,cost\n0,1,2.5\n1,2,1\n1,0,2.5\n")
    inf = np.inf
    expected = [[0, 2.5, inf], [2.5, 0, 1], [inf, 1, 0]]
    assert read_distances(path).tolist() == expected
    assert read_distances(path, num_sensors=4).shape == (4, 4)
    assert shortest_paths(read_distances(path)).tolist() == [
        [0, 2.5, 3.5],
        [2.5, 0, 1],
        [3.5, 1, 0],
    ]


def test_a_road_may_be_one_way(tmp_path):
    path = write(tmp_path / "d.csv", "from,to,cost\n0,1,2\n1,0,5\n")
    assert read_distances(path, directed=True).tolist() == [[0, 2], [5, 0]]
    with pytest.raises(ValueError, match=r"1 to 0 2 and 5.*--directed .*`directed=True`"):
        read_distances(path)


def test_a_matrix_is_read_as_it_is(tmp_path):
    assert read_distances(write(tmp_path / "one.csv", "0\n"), 1).tolist() == [[0]]
    path = write(tmp_path / "w.csv", "0,1e3,inf\n1e3,0,2\ninf,2,0\n")
    assert read_distances(path, 3).tolist() == [[0, 1000, np.inf], [1000, 0, 2], [np.inf, 2, 0]]


@pytest.mark.parametrize(
    ("text", "sensors", "message"),
    [
        ("0,1\n2,0\n", 2, "must be symmetric, but from 0 to 1 the distance is 1 and back it is 2"),
        ("0,1\n1,0\n", 3, "3 × 3 distances, but is 2 × 2"),
        ("0,1,2\n1,0,2\n", None, "2 × 2 distances, but is 2 × 3.*`from,to,length` before a list"),
        ("A,B,800\nB,C,1200\n", 3, "first line is a road: 'A,B,800'. Put .*`from,to,length`"),
        ("0,B,5\nB,1,5\n", 3, "first line is a road: '0,B,5'"),
        ("0,-1\n-1,0\n", 2, "0 or more, but that from 0 to 1 is -1"),
        ("0,\n1,0\n", 2, "from 0 to 1 is empty or NaN"),
        ("from,to,cost\n0,5,1\n", 3, "from 0 to 2, but names 0 to 5"),
        ("from,to,cost\n-1,1,1\n", 3, "from 0 to 2, but names -1 to 1"),
        ("from,to\n0,1\n", 2, "three columns.*matrix"),
        ("from,to\n0,1,5\n", 2, r"first line of d\.csv has fewer cells"),
        ("", 2, r"d\.csv is empty"),
        ("from;to;cost\n0;1;2\n", 2, "semicolons"),
        ("from,to,cost\n", 2, "at least one road"),
        ("from,to,cost\n0,1,far\n", 2, "third column, but holds 'far'"),
        ("from,to,cost\nA,B,1\n", 2, "'A' is none of them.*A matrix of numbers alone"),
        ("from,to,cost\n0,1,\n", 2, "no empty cell"),
        ("from,to,cost\n0,1,-3\n", 2, "0 or more"),
        ("from,to,cost\n0,1,3\n0,1,4\n", 2, "one length, but gives 0 to 1 3 and 4"),
    ],
)
def test_distances_that_cannot_be_are_refused(tmp_path, text, sensors, message):
    with pytest.raises(ValueError, match=message):
        read_distances(write(tmp_path / "d.csv", text), sensors)


@pytest.mark.parametrize("names", [["c", "a", "b"], ["403", "401", "402"]])
def test_distances_may_name_the_sensors_as_the_speeds_do(tmp_path, names):
    write(tmp_path / "v.csv", f"time,{','.join(names)}\n2024-01-01 00:00,1,2,3\n")
    found = read_speeds(tmp_path / "v.csv").sensor_names
    assert found == tuple(names)
    expected = [[0, 2, 5], [2, 0, np.inf], [5, np.inf, 0]]  # first to second 2, to third 5
    c, a, b = names
    texts = {
        "list": f"from,to,length\n{c},{a},2\n{b},{c},5\n",
        "matrix with a line of names": f"{a},{b},{c}\n0,inf,2\ninf,0,5\n2,5,0\n",
        "matrix with a line and a column": f",{c},{b},{a}\n{a},2,inf,0\n{b},5,0,inf\n{c},0,5,2\n",
        "list of numbers": "from,to,length\n0,1,2\n2,0,5\n",
        "matrix of numbers": "0,2,5\n2,0,inf\n5,inf,0\n",
    }
    for what, text in texts.items():
        path = write(tmp_path / "d.csv", text)
        assert read_distances(path, 3, sensor_names=found).tolist() == expected, what


def test_names_with_commas_head_a_matrix_as_they_head_the_speeds(tmp_path):
    write(tmp_path / "v.csv", 'time,"A7, north",A8\n2024-01-01 00:00,1,2\n')
    names = read_speeds(tmp_path / "v.csv").sensor_names
    assert names == ("A7, north", "A8")
    for text in (',A8,"A7, north"\nA8,0,3\n"A7, north",3,0\n', '"A7, north",A8\n0,3\n3,0\n'):
        path = write(tmp_path / "d.csv", text)
        assert read_distances(path, 2, sensor_names=names).tolist() == [[0, 3], [3, 0]]


def test_names_of_sensors_are_text_also_where_they_look_like_numbers(tmp_path):
    path = write(tmp_path / "d.csv", "from,to,length\n01,02,5\n")
    found = read_distances(path, 3, sensor_names=("00", "01", "02"))
    assert found[1, 2] == 5
    found = read_distances(path, 3, sensor_names=("02", "01", "00"))
    assert found[0, 1] == 5
    path = write(tmp_path / "v.csv", "time,02,01\n2024-01-01 00:00,1,2\n")
    assert read_distances(tmp_path / "d.csv", 2, False, read_speeds(path).sensor_names)[0, 1] == 5


@pytest.mark.parametrize(
    ("names", "roads", "stranger"),
    [
        (("2", "1", "0"), "0,1,5\n1,3,5\n", "'3'"),  # one unknown name does not make all numbers
        (("1", "2", "3"), "0,1,5\n1,2,5\n", "'0'"),
        (("01", "02", "03"), "1,2,5\n", "'1'"),  # a program that took away the zeros
        (("1", "b", "c"), "0,1,5\n", "'0'"),
    ],
)
def test_numbers_of_sensors_are_not_mixed_with_their_names(tmp_path, names, roads, stranger):
    path = write(tmp_path / "d.csv", f"from,to,length\n{roads}")
    with pytest.raises(ValueError, match=rf"all by their numbers.*{stranger} is none of them"):
        read_distances(path, 3, sensor_names=names)


@pytest.mark.parametrize("head", ["time,a,a,b", "a,b,c, a", "time,7,8,7"])
def test_two_sensors_of_one_name_are_refused(tmp_path, head):
    path = write(tmp_path / "v.csv", f"{head}\n{'2024-01-01' if 'time' in head else 9},1,2,3\n")
    with pytest.raises(ValueError, match=r"another name for each column, but '[a7]' comes twice"):
        read_speeds(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("from,to,length\na,b,1\nb,a,2\n", "gives 'b' to 'a' 1 and 2"),
        ("0,1\n2,0\n", "from 'a' to 'b' the distance is 1 and back it is 2"),
        ("b,a\n0,1\n2,0\n", "from 'a' to 'b' the distance is 2 and back it is 1"),
        ("0,\n1,0\n", "from 'a' to 'b' is empty"),
        ("a,b\n0,-1\n-1,0\n", "from 'a' to 'b' is -1"),
    ],
)
def test_errors_of_distances_name_the_sensors(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_distances(write(tmp_path / "d.csv", text), 2, sensor_names=("a", "b"))


def test_a_stranger_among_the_sensors_is_named(tmp_path):
    path = write(tmp_path / "d.csv", "from,to,length\na,b,1\na,z,2\n")
    with pytest.raises(ValueError, match=r"'z' is none of them \(a, b, c\).*matrix"):
        read_distances(path, 3, sensor_names=("a", "b", "c"))
    path = write(tmp_path / "m.csv", ",a,b\na,0,1\nz,1,0\n")
    with pytest.raises(ValueError, match="'z' is none of them"):
        read_distances(path, 2, sensor_names=("a", "b"))


def test_a_graph_by_percentile_or_by_kernel():
    places = torch.rand(12, 2)
    distances = torch.cdist(places, places)
    between = distances[~torch.eye(12, dtype=torch.bool)]
    threshold = np.percentile(between.numpy(), 40)
    near = (distances < threshold) & ~torch.eye(12, dtype=torch.bool)
    assert torch.equal(traffic_graph(distances).to_dense(), near.double())
    weights = torch.exp(-((distances / 0.3) ** 2)).fill_diagonal_(0)
    graph = traffic_graph(distances, "gaussian", bandwidth=0.3)
    torch.testing.assert_close(graph.to_dense(), torch.where(weights >= 0.5, weights, 0.0))


def test_the_hundredth_percentile_joins_all_that_have_a_way():
    """Also where there is one road, or all are as long, and nothing is under the longest."""
    inf = torch.inf
    line = torch.tensor([[0.0, 3, inf], [3, 0, inf], [inf, inf, 0]])
    assert traffic_graph(line, percentile=100).edge_index.tolist() == [[0, 1], [1, 0]]
    equal = torch.ones(4, 4).fill_diagonal_(0)
    assert torch.equal(traffic_graph(equal, percentile=100).to_dense(), equal)
    one_way = torch.tensor([[0.0, 2.0], [inf, 0.0]])
    graph = traffic_graph(one_way, percentile=100, directed=True)
    assert graph.edge_index.tolist() == [[0], [1]]
    with pytest.raises(ValueError, match="symmetric"):
        traffic_graph(one_way, percentile=100)
    with pytest.raises(ValueError, match="0 or more"):
        traffic_graph(-line, percentile=100)


@pytest.mark.usefixtures("without_type_checks")
def test_an_unknown_rule_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'nearest'.*gaussian, percentile"):
        traffic_graph(torch.zeros(2, 2), "nearest")


def test_stgcns_graph_of_pemsd7m_has_its_known_size(data_root):
    distances = read_distances(data_root / "pemsd7m" / "PeMSD7_W_228.csv", 228)
    graph = traffic_graph(distances, "gaussian", bandwidth=STGCN_BANDWIDTH)
    assert graph.num_edges == 2 * 832
    assert int((graph.degrees == 0).sum()) == 3
