"""A run of traffic forecasting from settings to result, and the command line around it."""

import dataclasses
import functools
import json

import numpy as np
import pytest
import torch

import graphode as gd
from graphode import cli
from graphode.data import TimeSplit, simulated_traffic
from graphode.ensembles import Ensemble
from graphode.experiments import traffic_run
from graphode.experiments.run_folder import read_metrics
from graphode.experiments.traffic import TrafficForecast
from graphode.experiments.traffic_data import (
    MemberBatch,
    MemberData,
    graph_of,
    held_out_mask,
    load_series,
    training_mask,
)
from graphode.experiments.traffic_evaluation import HeldOutData
from graphode.experiments.traffic_forecasters import MemberForecaster, Persistence
from graphode.experiments.traffic_models import builder, last_observed
from graphode.experiments.traffic_normalization import Normalizer
from graphode.experiments.traffic_objective import TrafficObjective, TrafficTask
from graphode.experiments.traffic_run import run
from graphode.experiments.trainer import Trainer, Training
from tests.experiments.consoles import CutDisplay, plain, said

CPU = torch.device("cpu")
SMALL = {"sensors": 5, "days": 4, "hidden": 4, "epochs": 2, "masks": 2, "device": "cpu"}


def small(model="gcde_gru", preset="tuned", **changes) -> TrafficForecast:
    return TrafficForecast.of(model, "simulated", preset, **{**SMALL, **changes})


def task(config: TrafficForecast) -> TrafficTask:
    series = load_series(config)
    graph = graph_of(series, config).normalize("sym").to(CPU, torch.get_default_dtype())
    return TrafficTask(series, config, graph, CPU)


@pytest.mark.parametrize(
    ("model", "preset"),
    [
        ("gcde_gru", "tuned"),
        ("gcde_gru", "printed"),
        ("gcgru", "tuned"),
        ("gcgru", "printed"),
        ("gru", "tuned"),
        ("gru", "printed"),
        ("gcde_lstm", "tuned"),
        ("gclstm", "tuned"),
        ("gcde_rnn", "tuned"),
        ("gcrnn", "tuned"),
        ("persistence", "tuned"),
        ("historical_average", "tuned"),
    ],
)
def test_every_model_runs(tmp_path, model, preset, without_type_checks):
    config = small(model, preset, epochs=1, days=3, keep=0.5, members=2, out=tmp_path)
    result = run(config, plain())
    assert result == json.loads((tmp_path / "result.json").read_text())
    assert result["members"] == 2
    tests = np.array(result["test"]["rmse"])
    assert tests.shape == (2, 2)  # members, masks
    assert result["metrics"]["rmse"]["mean"] == pytest.approx(tests.mean())
    assert result["metrics"]["rmse"]["std"] == pytest.approx(tests.std())
    assert 0 < result["metrics"]["rmse"]["mean"] < 60
    assert ("churn" in result) == (model not in ("gru", "persistence", "historical_average"))
    evaluations = result["evaluations"]["evaluations"]
    if "gcde" in model and preset == "tuned":
        # rk4, one step from sample to sample, and from the last to each that is asked for.
        assert evaluations == 4
    with np.load(tmp_path / "arrays.npz") as arrays:
        total = arrays["gap_squares"].sum(1) / arrays["gap_counts"].sum(1)
        assert arrays["day_squares"].sum() == pytest.approx(arrays["gap_squares"].sum())
        # By gap, over all masks; masks have nearly as many windows each.
        assert np.sqrt(total).mean() == pytest.approx(tests.mean(), rel=0.05)


def test_members_have_masks_orders_and_weights_of_their_own_and_are_their_lone_runs(
    tmp_path, without_type_checks
):
    changes = {"keep": 0.5, "days": 3}
    together = run(small(members=3, chunk=3, out=tmp_path / "all", **changes), plain())
    for place in range(3):
        lone = run(small(seed=place, out=tmp_path / str(place), **changes), plain())
        for name, values in lone["test"].items():
            assert values[0] == pytest.approx(together["test"][name][place], rel=1e-6), name
        assert lone["selected"]["epoch"][0] == together["selected"]["epoch"][place]
    assert len({tuple(row) for row in together["test"]["rmse"]}) == 3


def test_an_interrupted_run_ends_with_the_same_bits(tmp_path, monkeypatch, without_type_checks):
    changes = {"epochs": 5, "days": 3, "checkpoint_seconds": 0.0, "members": 2}
    whole = run(small("gcgru", out=tmp_path / "whole", **changes), plain())
    monkeypatch.setattr(CutDisplay, "at", 3)
    monkeypatch.setattr(traffic_run, "display", CutDisplay)
    console = plain()
    with pytest.raises(KeyboardInterrupt):
        run(small("gcgru", out=tmp_path / "cut", **changes), console)
    assert "goes on from its last checkpoint" in said(console)
    monkeypatch.undo()
    assert len(read_metrics(tmp_path / "cut")) == 3
    resumed = run(small("gcgru", out=tmp_path / "cut", **changes), plain())
    assert resumed["test"] == whole["test"]
    assert resumed["selected"] == whole["selected"]
    assert read_metrics(tmp_path / "cut") == read_metrics(tmp_path / "whole")


def test_the_selected_epoch_is_what_is_tested(tmp_path, without_type_checks):
    wild = {"epochs": 6, "lr": 0.1, "days": 3, "schedule": "constant"}
    whole = run(small("gcgru", **wild, out=tmp_path / "whole"), plain())
    rows = read_metrics(tmp_path / "whole")
    best = min(rows, key=lambda row: row["validation_loss"])["epoch"]
    assert whole["selected"]["epoch"] == [best]
    assert best < 5
    wild["epochs"] = best + 1
    assert run(small("gcgru", **wild, out=tmp_path / "cut"), plain())["test"] == whole["test"]


def test_an_epoch_of_batches_is_a_plain_loop_with_warm_restarts():
    """The trainer against torch's Adam and its cosine annealing, batch by batch."""
    config = small("gcgru", keep=0.5, days=3, schedule="restarts", period=2, batch_size=40)
    made = task(config)
    objective = made.for_members([7])
    build = builder(config, 5, 1)
    training = Training(epochs=3, lr=0.01, schedule="restarts", period=2, log_every=3)
    trainer = Trainer(Ensemble(build, [7]), objective, training)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = build(7)
    own = made.for_members([7])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 2)
    losses = []
    assert objective.num_batches > 1
    for epoch in range(3):
        trainer.step()
        total = 0.0
        for number in range(own.num_batches):
            own.turn(epoch, number)
            schedule.step(epoch + number / own.num_batches)
            batch = own.data.train[0].batch(own.rows[0])
            x = batch.x / torch.tensor([1.0, config.time_unit, 1.0])
            times, queries = batch.times / config.time_unit, batch.query_times / config.time_unit
            optimizer.zero_grad()
            with gd.stochastic(7, epoch * own.num_batches + number):
                found = model(x, times, made.graph, queries)[..., 0]
            loss = (found - batch.targets).square().mean()
            loss.backward()
            optimizer.step()
            total += loss.item() / own.num_batches
        losses.append(total)
    named = dict(zip(trainer.metrics, trainer.read(0, 3)[:, 0].unbind(-1), strict=True))
    assert named["train_loss"].tolist() == pytest.approx(losses, rel=1e-9)


def test_every_window_comes_once_an_epoch_and_in_another_order_the_next():
    objective = task(small("gcgru", keep=0.5, batch_size=16)).for_members([0, 1])
    seen = []
    for epoch in (0, 1):
        rows = []
        for batch in range(objective.num_batches):
            objective.turn(epoch, batch)
            rows.append(objective.rows.clone())
        seen.append(torch.cat(rows, 1))
    for member, own in enumerate(objective.data.train):
        chosen = seen[0][member]
        count = min(len(own), len(chosen))
        assert len(chosen[:count].unique()) == count
        assert not seen[0][member].equal(seen[1][member])
    assert not seen[0][0].equal(seen[0][1])


def forecaster_of(config: TrafficForecast, series=None):
    made = task(config)
    series = made.series if series is None else series
    masks = [training_mask(made.series, config, seed) for seed in config.seeds]
    fitted = [Normalizer.fit(made.series, kept, config.normalization) for kept in masks]
    ensemble = Ensemble(builder(config, series.num_sensors, 1), config.seeds)
    for parameter in ensemble.parameters():  # also the head that starts at zero
        parameter.data += 0.1 * torch.randn(
            parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())
        )
    data = HeldOutData(series, config, fitted, CPU)
    return MemberForecaster(ensemble, made.graph, data.normalizers, config.time_unit), data


@pytest.mark.parametrize("model", ["gcde_gru", "gcgru", "gru"])
@torch.no_grad()
def test_nothing_after_the_last_input_reaches_a_forecast(model):
    config = small(model, keep=0.4, days=3)
    series = simulated_traffic(5, 3)
    forecaster, data = forecaster_of(config)
    windows = data.of_mask(0)
    row = torch.tensor([7])
    before = forecaster(windows, row)
    future = int(windows[0].inputs[7, -1]) + 1
    changed = series.speeds.clone()
    changed[future:] = 1 + 50 * torch.rand(changed[future:].shape)
    others, moved = forecaster_of(config, dataclasses.replace(series, speeds=changed))
    assert others(moved.of_mask(0), row).equal(before)
    past = series.speeds.clone()
    past[future - 1] += 5.0
    others, moved = forecaster_of(config, dataclasses.replace(series, speeds=past))
    assert not others(moved.of_mask(0), row).equal(before)


@torch.no_grad()
@pytest.mark.parametrize("model", ["gcde_gru", "gcgru", "gru", "gcde_lstm"])
def test_tuned_members_start_at_persistence(model):
    config = small(model, normalization="overall")
    made = task(config)
    data = MemberData.of(made.series, config, [0], CPU)
    tests = HeldOutData(made.series, config, data.normalizers, CPU)
    ensemble = Ensemble(builder(config, 5, 1), [0])
    forecaster = MemberForecaster(ensemble, made.graph, tests.normalizers, config.time_unit)
    windows, rows = tests.of_mask(0), torch.arange(9)
    expected = Persistence(made.series, CPU)(windows, rows)
    torch.testing.assert_close(forecaster(windows, rows), expected)


def test_the_last_observation_is_found_under_a_mask():
    x = torch.arange(12.0).reshape(1, 4, 3, 1)
    mask = torch.ones(1, 4, 3, dtype=torch.bool)
    mask[0, 3, 0] = mask[0, 2:, 1] = False
    mask[0, :, 2] = False
    assert last_observed(x, mask).flatten().tolist() == [6.0, 4.0, 0.0]
    assert last_observed(x, None).flatten().tolist() == [9.0, 10.0, 11.0]


def test_masks_of_tests_are_independent_of_those_of_training():
    config = small(days=10, keep=0.3)
    series = load_series(config)
    tests = torch.stack([held_out_mask(series, config, k) for k in range(20)])
    trains = torch.stack([training_mask(series, config, seed) for seed in range(20)])
    # Independent masks agree in 0.3² + 0.7² of the timestamps.
    agree = (tests[:, None] == trains[None]).double().mean(-1)
    assert (agree - 0.58).abs().max() < 0.05
    assert held_out_mask(series, config, 3).equal(
        held_out_mask(series, dataclasses.replace(config, seed=9), 3)
    )


def test_unseen_times_are_not_in_the_training_data():
    config = small(protocol="unseen_times", keep=0.8, days=4)
    series = load_series(config)
    data = MemberData.of(series, config, [0], CPU)
    for windows in (*data.train, *data.val):
        assert (windows.times[windows.inputs] % 2 == 0).all()
        assert (windows.times[windows.queries] % 2 == 0).all()
    tests = HeldOutData(series, config, data.normalizers, CPU).of_mask(0)[0]
    ahead = tests.times[tests.queries] - tests.times[tests.inputs[:, -1:]]
    assert (ahead == torch.arange(1.0, 7.0)).all()


def test_every_second_row_from_the_first_of_a_stretch_may_be_seen():
    """Wherever a stretch begins, and though rows jitter about their intervals."""
    config = small(protocol="unseen_times", keep=1.0, days=4)
    series = load_series(config)
    rows = torch.arange(series.num_steps)
    jitter = 0.4 * torch.rand(series.num_steps, dtype=torch.float64)
    jitter[0] = 0.2
    for times in (series.times, series.times + 7 / 16, series.times + 11, series.times + jitter):
        moved = dataclasses.replace(series, times=times)
        assert training_mask(moved, config, 0).equal(rows % 2 == 0)
    split = dataclasses.replace(
        series, times=series.times + 12.5 * (rows >= 101), stretches=(rows >= 101).long()
    )
    assert training_mask(split, config, 0).equal((rows - 101 * (rows >= 101)) % 2 == 0)


def test_rows_an_interval_apart_are_never_both_seen_where_rows_are_denser():
    config = small(protocol="unseen_times", keep=1.0, days=4)
    series = load_series(config)
    seen = training_mask(dataclasses.replace(series, times=series.times / 2), config, 0)
    assert seen[:-2].logical_xor(seen[2:]).all()


@pytest.mark.parametrize("model", ["gcde_gru", "gcgru", "persistence"])
def test_forecasts_at_unseen_times_are_compared(tmp_path, model, without_type_checks):
    config = small(model, protocol="unseen_times", keep=0.8, epochs=1, out=tmp_path)
    found = run(config, plain())["unseen_times"]
    assert set(found) == {"forecast", "interpolated", "persistence"}
    assert list(found["interpolated"]) == ["1", "3", "5"]
    assert found["persistence"]["1"]["mean"] < found["persistence"]["6"]["mean"]
    if model == "persistence":
        for ahead, value in found["interpolated"].items():
            assert value["mean"] == pytest.approx(found["forecast"][ahead]["mean"])


@pytest.mark.parametrize("model", ["gcde_gru", "gcgru", "gru", "historical_average"])
def test_stgcns_protocol_has_three_horizons(tmp_path, model, without_type_checks):
    changes = {"epochs": 1, "days": 5, "batch_size": 256, "churn": 0.4}
    config = small(model, protocol="stgcn", **changes, out=tmp_path)
    assert config.keep == 1
    result = run(config, plain())
    assert list(result["horizons"]) == ["15 min", "30 min", "45 min"]
    means = [found["rmse"]["mean"] for found in result["horizons"].values()]
    assert np.mean(means) == pytest.approx(result["metrics"]["rmse"]["mean"])
    assert np.array(result["test"]["rmse"]).shape == (1, 1)


def test_when_nobody_is_a_neighbour_of_the_leaving_their_leaving_changes_nothing(
    tmp_path, without_type_checks
):
    config = small("gcgru", percentile=0.0, keep=0.5, churn=0.4, epochs=1, out=tmp_path)
    found = run(config, plain())["churn"]
    assert (found["leaving"], found["edges_cut"]) == (2, 0)
    assert found["rmse"] == pytest.approx(found["rmse_without_churn"], rel=1e-6)


def test_where_neighbours_leave_the_error_changes(tmp_path, without_type_checks):
    config = small("gcde_gru", percentile=80.0, keep=0.5, churn=0.4, epochs=1, out=tmp_path)
    found = run(config, plain())["churn"]
    assert found["rmse"] != pytest.approx(found["rmse_without_churn"], rel=1e-6)
    assert abs(found["rise_percent"]["mean"]) < 50
    assert found["edges_cut"] > 0


def test_the_printed_settings_are_the_papers():
    paper = TrafficForecast.of("gcde_gru", "pemsd7m", "printed")
    assert (paper.hidden, paper.percentile, paper.solver) == (46, 40, "dopri5")
    assert (paper.lr, paper.schedule, paper.period, paper.epochs) == (1e-2, "restarts", 10, 40)
    assert (paper.residual, paper.normalization, paper.time_unit) == (False, "overall", 12)
    assert TrafficForecast.of("gru", "pemsd7m", "printed").hidden == 50
    model = builder(paper, 228, 1)(0)
    assert type(model).__name__ == "GCDEGRU"
    tuned = TrafficForecast.of("gcde_gru")
    assert (tuned.residual, tuned.normalization, tuned.schedule) == (True, "usual", "cosine")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--keep", "0"], "`keep` must be a probability above 0 and at most 1, but is 0.0"),
        (["--keep", "1.5"], "`keep` must be a probability above 0 and at most 1, but is 1.5"),
        (["--dataset", "metr_la"], "metr_la"),
        (["--model", "transformer"], "Unknown model 'transformer'"),
        (["--preset", "authors"], "Unknown preset 'authors'"),
        (["--dataset", "file", "--speeds", "a.csv"], "without distances there is no graph"),
        (["--dataset", "file", "--speeds", "a.csv", "--distances", "b.csv"], "no file a.csv"),
        (["--protocol", "stgcn", "--keep", "0.5"], "`keep` must be 1"),
        (["--members", "0"], "`members` must be 1 or more"),
        (["--seed", "-1"], "Seeds must lie from 0"),
        (["--churn", "1"], "`churn` must be a share"),
        (["--time-unit", "0"], "`time_unit` must be positive"),
        (["--dropout", "1"], "`dropout` must be a share from 0 to below 1"),
        (["--later", "-1"], "`later` must be 0 or more"),
        (["--device", "cuda:99"], "There is no device 'cuda:99'"),
    ],
)
def test_mistakes_are_explained(tmp_path, capsys, flags, message, without_type_checks):
    with pytest.raises(SystemExit):
        cli.main(["run", "traffic", "--out", str(tmp_path), *flags])
    captured = capsys.readouterr()
    assert message in " ".join((captured.err + captured.out).replace("│", " ").split())


def test_a_keep_that_leaves_no_window_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no window fits"):
        run(small("gcgru", keep=0.001, out=tmp_path), plain())


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_a_part_without_a_window_is_named_before_training(tmp_path, monkeypatch, part):
    series = simulated_traffic(5, 3)
    parts = {"train": range(500), "val": range(500, 700), "test": range(700, 864)}
    parts[part] = parts[part][:5]
    short = dataclasses.replace(series, split=TimeSplit(**parts))
    monkeypatch.setattr(traffic_run, "load_series", lambda config: short)
    words = {"train": "training", "val": "validation", "test": "test"}[part]
    message = rf"The {words} part has no window.* 5 of 5 rows are kept .*Give more rows"
    with pytest.raises(ValueError, match=message):
        run(small("gcgru", keep=1.0, out=tmp_path / "run"), plain())
    assert not (tmp_path / "run").exists()


def test_a_solver_that_is_given_takes_its_own_number_of_steps():
    tuned, printed = TrafficForecast.of(), TrafficForecast.of(preset="printed")
    assert (tuned.solver, tuned.num_steps) == ("rk4", 1)
    assert (printed.solver, printed.num_steps) == ("dopri5", None)
    for preset in ("tuned", "printed"):
        of = functools.partial(TrafficForecast.of, preset=preset)
        assert of(solver="dopri5").num_steps is None
        assert of(solver="euler").num_steps == 1
        assert of(solver="rk4", num_steps=3).num_steps == 3
        flags = ["--preset", preset, "--solver", "tsit5", "--rtol", "1e-6"]
        assert TrafficForecast.defaults(flags).num_steps is None
    with pytest.raises(ValueError, match="Unknown solver 'rk5'"):
        TrafficForecast.of(solver="rk5")


def test_tolerances_of_fixed_steps_are_refused(tmp_path):
    for changes in ({}, {"solver": "dopri5", "num_steps": 2}):
        with pytest.raises(ValueError, match=r"--rtol and --atol .* without --num-steps"):
            small(rtol=1e-6, out=tmp_path, **changes).resolved()
    assert small(solver="dopri5", rtol=1e-6, out=tmp_path).resolved().num_steps is None
    assert small(solver="collocation", rtol=1e-6, out=tmp_path).resolved().num_steps == 1


def test_the_command_line_runs_and_goes_on(tmp_path, capsys, without_type_checks):
    flags = ["--model", "gcgru", "--sensors", "5", "--days", "3", "--hidden", "4", "--epochs", "1"]
    flags += ["--masks", "2", "--device", "cpu", "--out", str(tmp_path)]
    cli.main(["run", "traffic", *flags])
    assert "test RMSE" in capsys.readouterr().out
    cli.main(["run", "traffic", *flags])
    assert "finished before" in capsys.readouterr().out


def test_objectives_of_members_do_not_depend_on_who_is_beside_them():
    config = small("gcgru", keep=0.5)
    made = task(config)
    both, second = made.for_members([3, 4]), made.for_members([4])
    assert isinstance(both, TrafficObjective)
    assert both.num_batches == second.num_batches
    for epoch in range(2):
        both.turn(epoch, 0)
        second.turn(epoch, 0)
        assert both.rows[1].equal(second.rows[0])
    ensemble = Ensemble(builder(config, 5, 1), [3, 4])
    lone = Ensemble(builder(config, 5, 1), [4])
    torch.testing.assert_close(both.loss(ensemble)[1], second.loss(lone)[0])
    for name, values in both.measure(ensemble).items():
        torch.testing.assert_close(values[1], second.measure(lone)[name][0])


def test_later_samples_count_less_in_training_and_not_in_validation():
    config = small("gcde_gru", keep=0.5, targets=3, later=0.3, dropout=0.0)
    objective = task(config).for_members([0])
    ensemble = Ensemble(builder(config, 5, 1), [0])
    for parameter in ensemble.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    batch = MemberBatch.gather(objective.data.train, objective.rows, config.time_unit)
    assert batch.targets.shape[2] == 3
    errors = (batch.forecast(ensemble, objective.graph) - batch.targets).square().mean((1, 3))
    weights = torch.tensor([1.0, 0.3, 0.3])
    expected = (errors * weights).sum(1) / weights.sum()
    torch.testing.assert_close(objective.loss(ensemble), expected)
    assert objective.data.val[0].queries.shape[1] == 1


def test_weights_decay_as_asked(tmp_path, monkeypatch, without_type_checks):
    seen = []

    def train(ensemble, task, training, *args, **kwargs):
        seen.append(training.weight_decay)
        raise KeyboardInterrupt

    monkeypatch.setattr(traffic_run, "train", train)
    with pytest.raises(KeyboardInterrupt):
        run(small("gcgru", weight_decay=0.25, out=tmp_path), plain())
    assert seen == [0.25]
    with pytest.raises(ValueError, match="`weight_decay` must be 0 or more, but is -1"):
        small("gcgru", weight_decay=-1)


def test_a_model_that_holds_its_state_has_one_target():
    with pytest.raises(ValueError, match=r"gcgru holds its state.*`targets` must be 1, but is 2"):
        small("gcgru", targets=2)


def test_a_recorded_update_is_the_update(tmp_path, monkeypatch, without_type_checks):
    """A recorder that, as a GPU's, is handed an update once and repeats it."""
    calls = []

    def capture(step):
        def program():
            calls.append(1)
            step()

        return program

    plain_run = run(small("gcde_gru", out=tmp_path / "plain", epochs=2), plain())
    monkeypatch.setattr(traffic_run, "capture_on", lambda device, gradient: capture)
    recorded = run(small("gcde_gru", out=tmp_path / "recorded", epochs=2), plain())
    assert recorded["test"] == plain_run["test"]
    rows = [read_metrics(tmp_path / name) for name in ("plain", "recorded")]
    assert rows[0] == rows[1]
    batches = task(small("gcde_gru")).for_members([0]).num_batches
    assert len(calls) >= 2 * batches
