"""A configuration survives its file; a file that says something else is refused by name."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from htsrl import A2C, PPO, Config, ConfigError, Experiment, Network, Placement
from htsrl.config import NetworkFactory
from htsrl.config.file import from_document, load_config, resolve_env, to_json

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=5,
)


def make_cartpole(**arguments: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1", **arguments)


class Factory:
    """Makes environments in two ways."""

    @staticmethod
    def make() -> gymnasium.Env[Any, Any]:
        return make_cartpole()


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a field's declared type; new fields are tried without a word here."""
    if isinstance(hint, types.UnionType):
        return st.one_of([values_of(option) for option in typing.get_args(hint)])
    if typing.get_origin(hint) is typing.Literal:
        return st.sampled_from(typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return st.lists(values_of(typing.get_args(hint)[0]), max_size=3).map(tuple)
    if dataclasses.is_dataclass(hint):
        return instances_of(typing.cast(type, hint))
    simple: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.integers(),
        float: st.floats(allow_nan=False),
        str: st.text(),
        type(None): st.none(),
        Path: st.text("abc/. ", min_size=1).map(Path),
        NetworkFactory: st.just("my_networks:Residual"),  # a class is written as its name
        typing.get_type_hints(Experiment)["env_args"]: st.dictionaries(st.text(), json_values, max_size=3),
    }
    if hint is typing.Any:  # the settings of an algorithm
        return st.one_of(instances_of(A2C), instances_of(PPO))
    return simple[hint]


def instances_of(cls: type, **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    hints = {f.name: typing.get_type_hints(cls)[f.name] for f in dataclasses.fields(cls)}
    return st.builds(
        cls, **{name: values_of(hint) for name, hint in hints.items() if name not in {"env", *fixed}} | fixed
    )


environments = st.sampled_from(["CartPole-v1", "ale_py:ALE/Pong-v5", make_cartpole, Factory.make])
experiments = instances_of(
    Experiment,
    env=environments,
    schedule=st.sampled_from(["hts", "async", "my_schedules:Mine"]),
    sync_rule=st.sampled_from(["every", "qsr", "my_rules:Mine"]),
    init_from=st.sampled_from([None, "runs/first@best"]),
)
configs = st.builds(Config, experiments, instances_of(Placement))


@settings(max_examples=50)
@given(configs)
def test_a_configuration_survives_its_file(config: Config) -> None:
    read = from_document(json.loads(to_json(config)))
    named = dataclasses.replace(read.experiment, env=resolve_env(read.experiment.env))
    assert dataclasses.replace(read, experiment=named) == config


def test_what_is_left_out_takes_its_default() -> None:
    assert from_document({"experiment": {"env": "CartPole-v1"}}) == Config(Experiment("CartPole-v1"))
    a2c = from_document({"experiment": {"env": "CartPole-v1", "algorithm": {"name": "a2c", "discount": 0.5}}})
    assert a2c.experiment.algorithm == A2C(discount=0.5)


@pytest.mark.parametrize("lag_correction", ["auto", "recentered", "decoupled", "delayed_update", "none"])
def test_ppo_of_a_run_from_before_there_was_a_correction_of_its_lag_goes_on_without_one(lag_correction: Any) -> None:
    written = json.loads(to_json(Config(Experiment("any", algorithm=PPO(lag_correction=lag_correction)))))
    assert from_document(written).experiment.algorithm == PPO(lag_correction=lag_correction)
    del written["experiment"]["algorithm"]["lag_correction"]
    assert from_document(written).experiment.algorithm == PPO(lag_correction="none")
    by_hand = {"experiment": {"env": "any", "algorithm": {"name": "ppo", "epochs": 3}}}
    assert from_document(by_hand).experiment.algorithm == PPO(epochs=3)


def test_a_whole_number_will_do_for_a_float() -> None:
    config = from_document({"experiment": {"env": "x", "algorithm": {"name": "ppo", "discount": 1}}})
    assert isinstance(config.experiment.algorithm.discount, float)


def test_the_file_is_read_from_its_path(tmp_path: Path) -> None:
    config = Config(Experiment("CartPole-v1", algorithm=PPO(epochs=7)), Placement(run_dir=tmp_path))
    (tmp_path / "config.json").write_text(to_json(config))
    assert load_config(tmp_path / "config.json") == config


def test_another_environment_can_be_put_in_place_of_one_that_cannot_be_loaded() -> None:
    document = json.loads(to_json(Config(Experiment(lambda: make_cartpole()))))
    assert from_document(document, env=make_cartpole).experiment.env is make_cartpole


def make_local_function() -> Any:
    def make_env() -> gymnasium.Env[Any, Any]:
        return make_cartpole()

    return make_env


@pytest.mark.parametrize(
    "env",
    [
        lambda: make_cartpole(),
        make_local_function(),
        functools.partial(make_cartpole, sutton_barto_reward=True),
        functools.partial(gymnasium.make, "CartPole-v1"),
    ],
    ids=["lambda", "local function", "partial", "partial of another module"],
)
def test_a_callable_that_has_no_name_to_import_is_refused_when_it_is_wanted(env: Any) -> None:
    document = json.loads(to_json(Config(Experiment(env))))
    name = from_document(document).experiment.env
    with pytest.raises(ConfigError, match=r"cannot be imported here.*from Python with the callable itself"):
        resolve_env(name)


@pytest.mark.parametrize(
    "name", ["callable nowhere:make", "callable json:make", "callable :make", "callable .here:make", "callable json"]
)
def test_a_name_that_cannot_be_imported_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be imported here"):
        resolve_env(name)


def test_a_module_that_fails_to_import_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing_module.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot be imported here.*division by zero"):
        resolve_env("callable failing_module:make")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], r"the configuration must be an object of names and values, not \[\]"),
        ({"experiments": {}}, "unknown key 'experiments' in the configuration; did you mean 'experiment'?"),
        ({"experiment": 7}, "experiment must be an object of names and values, not 7"),
        ({"experiment": {}}, "names no environment; give experiment.env"),
        ({"experiment": {"env": "x", "num_env": 4}}, "unknown key 'num_env' in experiment; did you mean 'num_envs'?"),
        ({"experiment": {"env": "x", "zzz": 4}}, "unknown key 'zzz' in experiment; known are algorithm, env, "),
        ({"experiment": {"env": 4}}, "experiment.env=4 must be text"),
        ({"experiment": {"env": "x", "num_envs": "4"}}, "experiment.num_envs='4' must be a whole number"),
        ({"experiment": {"env": "x", "num_envs": 4.5}}, "experiment.num_envs=4.5 must be a whole number"),
        ({"experiment": {"env": "x", "num_envs": True}}, "experiment.num_envs=True must be a whole number"),
        ({"experiment": {"env": "x", "num_envs": None}}, "experiment.num_envs=None must be a whole number"),
        (
            {"experiment": {"env": "x", "sync_interval": "5"}},
            "experiment.sync_interval='5' must be a whole number or None",
        ),
        ({"experiment": {"env": "x", "schedule": "hst"}}, "schedule 'hst' is not known; use hts, sync, lockstep"),
        ({"experiment": {"env": "x", "schedule": ["hts"]}}, r"experiment.schedule=\['hts'\] must be text"),
        ({"experiment": {"env": "x", "env_args": [1]}}, r"experiment.env_args=\[1\] must be "),
        ({"experiment": {"env": "x", "imports": "ale_py"}}, "experiment.imports='ale_py' must be "),
        ({"experiment": {"env": "x", "imports": [1]}}, r"experiment.imports\[0\]=1 must be text"),
        (
            {"experiment": {"env": "x", "network": {"hidden_sizes": [64, "a"]}}},
            r"hidden_sizes\[1\]='a' must be a whole number",
        ),
        (
            {"experiment": {"env": "x", "network": {"separate_value": 1}}},
            "separate_value=1 must be true or false or None",
        ),
        (
            {"experiment": {"env": "x", "network": {"hidden": []}}},
            "unknown key 'hidden' in experiment.network; did you",
        ),
        (
            {"experiment": {"env": "x", "algorithm": {"name": "alphazero"}}},
            "algorithm 'alphazero' is not known; use .*ppo.* or MODULE:CLASS",
        ),
        ({"experiment": {"env": "x", "algorithm": {"discount": 1.0}}}, "algorithm.*name.*one of .*ppo"),
        ({"experiment": {"env": "x", "algorithm": "ppo"}}, 'algorithm.*{"name": "ppo"}'),
        (
            {"experiment": {"env": "x", "algorithm": {"name": "a2c", "clip_range": 1}}},
            "unknown key 'clip_range' in exp",
        ),
        ({"experiment": {"env": "x"}, "placement": {"device": 0}}, "placement.device=0 must be text"),
        ({"experiment": {"env": "x"}, "placement": {"run_dir": 0}}, "placement.run_dir=0 must be Path or None"),
        ({"experiment": {"env": "x"}, "placement": {"num_executor": 0}}, "did you mean 'num_executors'?"),
    ],
)
def test_a_document_that_cannot_be_understood_is_refused_by_name(document: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refusal:
        from_document(document)
    assert "None'" not in str(refusal.value), "a name that is not there is not called None"


def test_settings_under_their_old_names_are_read_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = {"memory": "gru", "memory_size": 8, "hidden_sizes": [4]}
    (tmp_path / "config.json").write_text(json.dumps({"experiment": {"env": "x", "network": network}}))
    read = load_config(tmp_path / "config.json")
    assert load_config(tmp_path / "config.json") == read
    assert read.experiment.network == Network(recurrent="gru", recurrent_size=8, hidden_sizes=(4,))
    said = capsys.readouterr().err
    assert said.count("memory is now called recurrent;") == said.count("memory_size is now called recurrent_size;") == 1


def test_a_setting_under_both_of_its_names_is_refused() -> None:
    with pytest.raises(ConfigError, match="has 'memory' and 'recurrent', which are one setting"):
        from_document({"experiment": {"env": "x", "network": {"memory": "gru", "recurrent": "gru"}}})


def test_decoupled_in_a_run_of_before_is_read_as_what_it_meant_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = json.loads(to_json(Config(Experiment("x", algorithm=PPO(lag_correction="decoupled")))))
    todays = tmp_path / "today.json"
    todays.write_text(json.dumps(whole))
    for later in ("first_epoch_clip_factor", "max_importance_weight", "advantage_normalization"):
        del whole["experiment"]["algorithm"][later]
    before = tmp_path / "before.json"
    before.write_text(json.dumps(whole))
    short = {"experiment": {"env": "x", "algorithm": {"name": "ppo", "lag_correction": "decoupled"}}}

    assert load_config(before).experiment.algorithm == PPO(lag_correction="recentered")
    assert capsys.readouterr().err.count(f"{before}: lag_correction=decoupled is now called recentered;") == 1
    assert load_config(todays).experiment.algorithm == PPO(lag_correction="decoupled")
    assert from_document(short).experiment.algorithm == PPO(lag_correction="decoupled")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("content", [b"{", b"", b"\xf0\x28\x8c\x28", b"[1]", b'{"experiment": {"env": 4}}'])
def test_a_file_that_cannot_be_understood_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.json"):
        load_config(tmp_path / "broken.json")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json: No such file or directory"):
        load_config(tmp_path / "nowhere.json")


def test_numpys_numbers_among_the_environments_arguments_stay_numbers() -> None:
    config = Config(Experiment("x", env_args={"size": np.int64(3), "gravity": np.float32(0.5), "wind": np.bool_(True)}))
    assert from_document(json.loads(to_json(config))).experiment.env_args == {"size": 3, "gravity": 0.5, "wind": True}
