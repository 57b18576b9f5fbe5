"""What a run's solves cost, from its metrics."""

from graphode.experiments.run_costs import mean_costs


def test_costs_are_means_over_members_and_the_epochs_that_have_them():
    taught = {"members": 3, "evaluations": 4.0, "backward_evaluations": 2.0}
    evaluated = {**taught, "members": 1, "evaluations": 8.0, "evaluations_without_masks": 6.0}
    assert mean_costs([taught, evaluated]) == {
        "evaluations": 5.0,
        "backward_evaluations": 2.0,
        "evaluations_without_masks": 6.0,
    }
    assert set(mean_costs([]).values()) == {0.0}
