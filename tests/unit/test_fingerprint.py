"""A fingerprint identifies the code that computes, the packages behind an environment and the user's own modules."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest

import htsrl
from htsrl import Config, Experiment, Placement
from htsrl.envs.make import make_env
from htsrl.envs.origins import Origins, _package_of, origins_of
from htsrl.fingerprint import Fingerprint
from htsrl.runs.start import fingerprint_for
from htsrl.source_hashes import CANNOT_CHANGE_BITS, code_hashes

PACKAGE = Path(htsrl.__file__).parent
SAME = (
    "htsrl",
    "python",
    "gymnasium",
    "numpy",
    "torch",
    "machine",
    "cpu_capability",
    "device",
    "mkl_mode",
    "computation",
)
FINGERPRINT = Fingerprint.from_document(
    {
        **dict.fromkeys(SAME, "same"),
        "code": {"algorithms": "a1", "roles": "b1"},
        "packages": {"ale-py": "0.11"},
        "own_modules": {"mine": "c1"},
    }
)


# The code of htsrl.


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for place in ("algorithms/ppo.py", "export/formats.py", "cli/main.py", "metrics/sinks.py", "metrics/episodes.py"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text("NUMBER = 1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("place", "changed"),
    [
        ("algorithms/ppo.py", {"algorithms"}),
        ("metrics/episodes.py", {"metrics"}),
        ("survey.py", {"survey"}),
        ("export/formats.py", set()),
        ("metrics/sinks.py", set()),
        ("cli/main.py", set()),
    ],
)
def test_only_code_that_can_change_bits_changes_the_hashes(package: Path, place: str, changed: set[str]) -> None:
    before = code_hashes(package)
    (package / place).write_text("NUMBER = 2\n")
    after = code_hashes(package)
    assert {part for part in before.keys() | after.keys() if before.get(part) != after.get(part)} == changed


def test_a_file_of_another_name_changes_them(package: Path) -> None:
    before = code_hashes(package)
    (package / "algorithms/ppo.py").rename(package / "algorithms/a2c.py")
    assert code_hashes(package)["algorithms"] != before["algorithms"]


def test_line_ends_do_not_matter(package: Path) -> None:
    before = code_hashes(package)
    (package / "algorithms/ppo.py").write_bytes(b"NUMBER = 1\r\n")
    assert code_hashes(package) == before


def test_what_is_left_out_exists() -> None:
    assert [place for place in CANNOT_CHANGE_BITS if not (PACKAGE / place).exists()] == []


def test_what_computes_is_not_left_out() -> None:
    assert {"algorithms", "policies", "roles", "schedules", "dataflow", "envs", "seeding", "digest"} <= {*code_hashes()}


# What differs, in words.


def test_equal_fingerprints_have_no_differences() -> None:
    assert FINGERPRINT.differences(replace(FINGERPRINT)) == []


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"torch": "2.0"}, r"torch: same / 2\.0"),
        ({"code": {"algorithms": "a2", "roles": "b1"}}, r"code of htsrl: \w+ / \w+ \(it differs in algorithms\)"),
        ({"code": None}, r"code of htsrl: \w+ / unknown"),
        ({"packages": {"ale-py": "0.12"}}, r"ale-py: 0\.11 / 0\.12"),
        ({"packages": {}}, r"ale-py: 0\.11 / not used"),
        ({"packages": None}, r"packages behind the environment: ale-py 0\.11 / unknown"),
        ({"own_modules": {"mine": "c2"}}, r"own module mine: c1 / c2"),
    ],
    ids=str,
)
def test_what_differs_is_named(change: dict[str, Any], line: str) -> None:
    (found,) = FINGERPRINT.differences(replace(FINGERPRINT, **change))
    assert re.fullmatch(line, found), found


def test_a_fingerprint_survives_its_document_and_an_older_one_says_unknown() -> None:
    document = asdict(FINGERPRINT)
    assert Fingerprint.from_document(document) == FINGERPRINT
    older = {name: value for name, value in document.items() if isinstance(value, str)}
    assert Fingerprint.from_document(older).code is None


@pytest.mark.parametrize(
    "change", [{"torch": 2}, {"code": {"algorithms": 1}}, {"code": ["x"]}, {"packages": "x"}, {"other": "x"}], ids=str
)
def test_a_document_that_is_no_fingerprint_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        Fingerprint.from_document(asdict(FINGERPRINT) | change)


def test_a_run_has_what_is_behind_its_environment_in_its_fingerprint() -> None:
    config = Config(Experiment("CartPole-v1"), Placement("inline"))
    origins = Origins({"ale-py": "0.11"}, {"mine": "c1"})
    blueprint: Any = SimpleNamespace(config=config, experiment=config.experiment, origins=origins)
    found = fingerprint_for(blueprint)
    assert (found.packages, found.own_modules) == (origins.packages, origins.own_modules)


# What is behind an environment.

OWN_ENV = """
import gymnasium
import own_physics
import simulator_of_test

class Cube(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

def make():
    return gymnasium.wrappers.TimeLimit(Cube(), 10)
"""


@pytest.fixture
def load_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """Imports anew a module with an environment, which imports one of the user's own and an installed one."""
    site = tmp_path / "site-packages"
    information = site / "Test_Simulator-1.2.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: Test-Simulator\nVersion: 1.2\n")
    (information / "RECORD").write_text("simulator_of_test/__init__.py,,\n")
    (site / "simulator_of_test").mkdir()
    (site / "simulator_of_test" / "__init__.py").write_text("")
    (tmp_path / "own_env.py").write_text(OWN_ENV)
    (tmp_path / "own_physics.py").write_text("GRAVITY = 9.81\n")
    for folder in (tmp_path, site):
        monkeypatch.syspath_prepend(str(folder))

    def load() -> Any:
        forget()
        return importlib.import_module("own_env")

    def forget() -> None:
        for name in ("own_env", "own_physics", "simulator_of_test"):
            sys.modules.pop(name, None)
        _package_of.cache_clear()

    yield load
    forget()


def test_an_environment_is_known_by_its_packages_and_the_sources_of_its_own_modules(
    load_env: Callable[[], Any], tmp_path: Path
) -> None:
    before = origins_of(load_env().make())
    assert before.packages == {"Test-Simulator": "1.2"}
    assert sorted(before.own_modules) == ["own_env", "own_physics"]
    (tmp_path / "own_physics.py").write_text("GRAVITY = 1.62\n")
    after = origins_of(load_env().make())
    assert [name for name, found in after.own_modules.items() if found != before.own_modules[name]] == ["own_physics"]


@pytest.mark.parametrize(
    "thing",
    [lambda own: own.make, lambda own: partial(own.make), lambda own: "own_env:make", lambda own: [own.Cube]],
    ids=["function", "partial", "text", "list"],
)
def test_a_factory_tells_where_it_comes_from(load_env: Callable[[], Any], thing: Callable[[Any], object]) -> None:
    assert origins_of(thing(load_env())) == origins_of(load_env().make())


def test_what_is_gymnasiums_and_htsrls_own_needs_no_mention() -> None:
    for env in (gymnasium.make("CartPole-v1"), gymnasium.make("htsrl/PixelCatch-v0")):
        assert origins_of(env, None, "") == Origins()


@pytest.mark.skipif(importlib.util.find_spec("ale_py") is None, reason="needs ale-py")
def test_an_emulator_and_what_resizes_its_screens_are_found() -> None:
    packages = origins_of(make_env("ALE/Pong-v5", {}, ())).packages
    assert "ale-py" in packages
    assert any(name.startswith("opencv") for name in packages)
