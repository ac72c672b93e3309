"""The classifier that the sync rules are tried on: its gradient, and meetings that it has with one learner's result."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from htsrl.config.check import check
from htsrl.errors import ConfigError
from htsrl.learners.fixed import Fixed
from htsrl.learners.rule import Meeting, ReplicaReport, RuleFacts
from htsrl_bench.announcer import Announcer
from htsrl_bench.systems import digits
from htsrl_bench.systems.digits import Digits, Perceptron, Training, train_classifier
from htsrl_bench.systems.planned_rounds import PLANNED, PlannedRounds, controls_of
from htsrl_bench.systems.sync_rule_runs import WAYS, SyncRuleRuns


def test_the_gradient_is_that_of_finite_differences() -> None:
    draw, model = np.random.default_rng(0), Perceptron(hidden=3)
    parameters = np.stack([model.initial(1), model.initial(2)]).astype(np.float64)
    batch = Digits(draw.random((2, 5, 64)), draw.integers(0, 10, (2, 5)))

    def loss(at: np.ndarray[tuple[int, int], np.dtype[np.float64]], replica: int) -> float:
        _, logits = model._forward(at, batch.images)
        log_sums = np.log(np.exp(logits[replica]).sum(axis=1))
        return float((log_sums - logits[replica, np.arange(5), batch.labels[replica]]).mean())

    gradients = model.gradients(parameters, batch)
    for replica, place in [(0, 7), (1, 100), (0, 193), (1, model.size - 30), (1, model.size - 2)]:
        above, below = parameters.copy(), parameters.copy()
        above[replica, place] += 1e-6
        below[replica, place] -= 1e-6
        slope = (loss(above, replica) - loss(below, replica)) / 2e-6
        assert gradients[replica, place] == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize(("rounds", "num_updates"), [(5, 20), (79, 100), (428, 600), (1, 7), (7, 7)])
def test_a_control_has_as_many_rounds_as_are_asked_for_and_one_after_the_last_update(
    seed: int | None, rounds: int, num_updates: int
) -> None:
    rule = PlannedRounds(PlannedRounds.Settings(rounds, seed), RuleFacts(2, num_updates))
    reports = [ReplicaReport(0.1, 1.0)] * 2
    met = [rule.decide(update, np.zeros(0), reports).meeting is Meeting.AVERAGE for update in range(num_updates)]
    assert sum(met) == rounds
    assert met[-1]
    distances = np.diff(np.flatnonzero([True, *met]))
    assert seed is not None or distances.max() - distances.min() <= 1


def blobs(seed: int) -> tuple[Digits, Digits]:
    """Ten images with noise, in place of scikit-learn's."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 10, 400)
    images = (draw.random((10, 64))[labels] + 0.3 * draw.random((400, 64))).astype(np.float32)
    return Digits(images[:300], labels[:300]), Digits(images[300:], labels[300:])


def test_a_classifier_learns_and_sends_what_its_rounds_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "load_digits", blobs)
    training = Training(learners=2, num_updates=60)
    trained = train_classifier(training, Fixed(Fixed.Settings(local_updates=7), RuleFacts(2, 60)), seed=1)
    assert trained.accuracy > 0.6  # chance is 0.1
    assert trained.rounds == 9
    assert trained.bytes == 9 * 2 * 2 * 4 * Perceptron().size
    assert trained == train_classifier(training, Fixed(Fixed.Settings(local_updates=7), RuleFacts(2, 60)), seed=1)


@pytest.mark.parametrize("way", WAYS)
def test_the_runs_of_the_experiment_on_cartpole_can_be_made(way: str) -> None:
    rule, args = WAYS[way]
    experiment = check(SyncRuleRuns().config(rule, args, seed=1)).experiment
    assert experiment.num_intervals == 100
    assert experiment.per_replica.batch_steps == (16 if rule == "every" else 4) * 32


def test_finished_runs_are_not_made_again_and_those_with_other_settings_are_refused(tmp_path: Path) -> None:
    """Of a control: in a run as in the classifier it has as many rounds as the rule had."""
    bench = SyncRuleRuns(total_steps=2048, learners=2, finished_runs=tmp_path)
    (control, even), (_, drawn) = controls_of("selsync", rounds=3, seed=1).items()
    assert bench._train(control, PLANNED, asdict(even), 1, Announcer(1)).rounds == 3
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text().replace('"rounds": 3, "bytes"', '"rounds": 77, "bytes"'))
    assert bench._train(control, PLANNED, asdict(even), 1, Announcer(1)).rounds == 77
    with pytest.raises(ConfigError, match="other settings"):
        bench._train(control, PLANNED, asdict(drawn), 1, Announcer(1))
