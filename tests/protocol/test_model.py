"""The model of the protocol in docs/protocol: Spin finds no error in it and the seeded ones, and it is the code's."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import htsrl
from htsrl.dataflow.capsules import num_places_for
from htsrl.dataflow.exchange import Tickets
from htsrl.dataflow.versions import num_slots_for
from htsrl.schedules.fixed_lag import FixedLag

PACKAGE = Path(htsrl.__file__).parent
FOLDER = Path(__file__).parents[2] / "docs" / "protocol"
README = (FOLDER / "README.md").read_text()
MODELS = {path.stem: path.read_text() for path in FOLDER.glob("*.pml")}
NUM_STEPS = 3
IN_ORDER = {
    "roles/learner.py::Learner.publish": (
        "_parameters.commit(",
        "_slots.write(",
        "_outlets.report(",
        "published_version =",
    ),
    "roles/learner.py::Learner.make_version": (
        "check_versions(",
        "complete(",
        "at_barrier(",
        "self.learn(",
        "publish(",
    ),
    "roles/actor.py::Actor._act": ("_fields[name][cells] =", '_fields["versions"][cells] =', "_hand_over("),
    "roles/actor.py::Actor._value": ('_fields["bootstrap_values"]', "_hand_over("),
    "roles/env_runner.py::EnvRunner._step": ("agents.step", 'own["rewards"][row] =', "_enter_next_row("),
    "roles/env_runner.py::EnvRunner._complete_rollout": ("keep_capsule()", "completed_rollouts[self.index] ="),
    "roles/env_runner.py::EnvRunner.keep_capsule": ("_recall.keep", "_capsules.put("),
    "roles/env_runner.py::EnvRunner._begin_rollout": (
        "_draw_noise()",
        "_num_steps, self._columns]",
        "_ask_for_action()",
    ),
    "placements/supervisor.py::Supervisor._handle_death": (
        "worker.end()",
        "_listen_to(",
        "published_version =",
        "_replace(",
    ),
    "placements/supervisor.py::Supervisor._replace": ("_set_to_work(", "doorbell.ring()"),
    "placements/worker.py::_take_turns": ("advance_all(", "sleeper.clear()", "advance_all(", "sleeper.sleep("),
    "placements/sleeper.py::Sleeper.sleep_until": ("self.clear()", "it_is_so()", "self.sleep("),
    "roles/executor.py::Executor.advance": ("env_runner.advance()", "notify_actors(", "notify_learner("),
    "dataflow/gradient_orders.py::GradientOrders.issue": ("self.unanswered()", "_order[1:] =", "_order[0] +="),
    "roles/gradient_worker.py::GradientWorker.advance": ("pending(", "carry_out(", "answer(", "_notify_learner()"),
    "algorithms/gradient.py::Gradient.take": ("self._ask(", "self.shards.take(", "await_answers()", "add_up()"),
    "dataflow/replicas.py::ReplicaWords.note_draft": ("_reports[replica] =", "_drafted[replica] ="),
    "roles/replica_learner.py::ReplicaLearner.make_draft": ("complete(", "self.learn(", "note_draft("),
    "roles/meetings.py::Meetings.hold": ("_wait(", "reports()", "_merge(", "state[NUM_COUNTERS:] ="),
    "roles/meetings.py::Meetings._merge": ("is_merged(", "model.merge(", "note_merged(", "take_over("),
    "cluster/crossing.py::Crossing._put": ("_fields[name][storage]", "_capsules.put(", "completed_rollouts[envs] ="),
    "cluster/crossing.py::Crossing.put_versions": ("rows[...] =", "published_version ="),
    "cluster/islands.py::RemoteIsland.begin": ("acting_versions()", "whole_rollouts()", "_sent_version ="),
    "algorithms/draft.py::Drafts.begin": ("_gradient.begin(", "_ring.draft("),
}
"""What the models rely on: these come one after the other in the function."""


def load_check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("protocol_check", FOLDER / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for it
    spec.loader.exec_module(module)
    return module


check = load_check()


@pytest.mark.skipif(bool(check.missing_tools()), reason="spin and gcc are not installed; `make model` installs spin")
@pytest.mark.parametrize("case", check.QUICK, ids=lambda case: case.name)
def test_spin_finds_no_error_in_the_models_and_finds_the_seeded_ones(case: object) -> None:
    outcome = check.verify(case)
    assert check.is_as_expected(case, outcome), check.describe(case, outcome)


def test_a_search_that_was_cut_short_is_no_proof() -> None:
    printed = (
        "error: max search depth too small\nState-vector 132 byte, depth reached 99, errors: 0\n"
        "  1234 states, stored\n  156.1\ttotal actual memory usage\npan: elapsed time 1.5 seconds\n"
    )
    case, outcome = check.Check("run"), check.outcome_of(printed)
    assert (outcome.states, outcome.depth, outcome.errors) == (1234, 99, 0)
    assert not check.is_as_expected(case, outcome)
    assert check.is_as_expected(case, check.outcome_of(printed.partition("\n")[2]))


def test_every_seeded_error_of_the_models_is_looked_for_and_told_of() -> None:
    seeded = {(model, name) for model, text in MODELS.items() for name in re.findall(r"SEEDED_\w+", text)}
    assert {(case.model, case.seeded) for case in check.SEEDED} == seeded
    rows = re.findall(r"^\| (\w+) \| `([A-Z_]+)` \|", README, re.MULTILINE)
    assert {(model, f"SEEDED_{name}") for model, name in rows} == seeded


def test_the_results_of_every_check_are_in_the_readme() -> None:
    for case in (*check.CORRECT, *check.LARGE):
        assert f"| `{case.name}` " in README, case.name


def source_of(where: str) -> str:
    """Of a function, named as `roles/learner.py::Learner.advance`."""
    file, _, name = where.partition("::")
    text = (PACKAGE / file).read_text()
    scope: ast.AST = ast.parse(text)
    for part in name.split("."):
        named = [node for node in ast.iter_child_nodes(scope) if getattr(node, "name", None) == part]
        assert named, f"{where} is not there"
        scope = named[0]
    source = ast.get_source_segment(text, scope)
    assert source is not None
    return source


@pytest.mark.parametrize("where", sorted(set(re.findall(r"`([a-z_/]+\.py::[\w.]+)`", README))))
def test_what_the_model_says_it_stands_for_is_there(where: str) -> None:
    assert source_of(where)


@pytest.mark.parametrize("where", IN_ORDER)
def test_the_code_writes_in_the_order_of_the_model(where: str) -> None:
    rest = source_of(where)
    for step in IN_ORDER[where]:
        _, found, rest = rest.partition(step)
        assert found, f"{step!r} does not follow in {where}, on which docs/protocol relies"


def defined(name: str, **values: int) -> int:
    """A macro of the model, which Python can compute but for its conditionals."""
    found = re.search(rf"#define {name}(?:\([\w, ]*\))? (.*?)\s*(?:/\*|$)", MODELS["run"], re.MULTILINE)
    assert found is not None, name
    expression = re.sub(r"^\((.*) -> (.*) : (.*)\)$", r"(\2) if \1 else (\3)", found.group(1))
    value: int = eval(expression.replace("/", "//"), {"ROWS": NUM_STEPS + 1, "STEPS": NUM_STEPS, **values})
    return value


def test_tickets_are_those_of_the_code() -> None:
    tickets = Tickets(rows_per_rollout=NUM_STEPS + 1)
    for rollout in range(4):
        for row in range(NUM_STEPS + 1):
            to_act = defined("TO_ACT", rollout=rollout, row=row)
            assert to_act == tickets.to_act(rollout, row)
            assert to_act - 1 == tickets.for_value(rollout, row)
            assert defined("ROLLOUT_OF", ticket=to_act) == tickets.rollout(to_act)


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_versions_act_as_the_schedule_says(lag: int) -> None:
    acting = [FixedLag(lag).acting_version(rollout) for rollout in range(5)]
    assert [defined("ACTING_VERSION", rollout=j, K=lag) for j in range(5)] == acting


def test_there_are_as_many_slots_storages_and_capsules_as_in_the_model() -> None:
    assert "#else\n#define SLOTS (K + 2)" in MODELS["run"]
    assert "#elif K > 0\n#define PLACES (K + 1)" in MODELS["run"]
    for lag in (1, 2, 4):
        assert defined("STORAGES", K=lag) == FixedLag(lag).num_storages
        assert num_slots_for(lag) == lag + 2
        assert num_places_for(lag) == lag + 1
