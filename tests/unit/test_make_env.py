"""Making an environment, and the one ConfigError that answers everything that can go wrong with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from htsrl.envs.make import make_env
from htsrl.errors import ConfigError

REPOSITORY = Path(__file__).parents[2]
REGISTERING_MODULE = """
import gymnasium
gymnasium.register(id="{name}/Own-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
"""


@pytest.fixture
def module_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder that modules can be imported from; what they register is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    known_ids, known_modules = set(gymnasium.registry), set(sys.modules)
    yield tmp_path
    for env_id in set(gymnasium.registry) - known_ids:
        del gymnasium.registry[env_id]
    for module in set(sys.modules) - known_modules:
        del sys.modules[module]


def refusal(env: Any, env_args: dict[str, Any] | None = None, imports: tuple[str, ...] = ()) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        make_env(env, env_args or {}, imports)
    return caught.value


def test_a_gymnasium_id_is_made_with_its_arguments() -> None:
    env = make_env("CartPole-v1", {"sutton_barto_reward": True}, ())
    assert isinstance(env.unwrapped, CartPoleEnv)
    assert env.unwrapped._sutton_barto_reward


def test_gymnasiums_own_checker_stays_out() -> None:
    assert "PassiveEnvChecker" not in str(make_env("CartPole-v1", {}, ()))


def test_an_episode_limit_among_the_arguments_reaches_gymnasium() -> None:
    env = make_env("htsrl/PixelCatch-v0", {"max_episode_steps": 1}, ())
    env.reset(seed=0)
    assert env.step(1)[3] is True


def test_a_callable_is_called_with_the_arguments() -> None:
    env = make_env(CartPoleEnv, {"render_mode": "rgb_array"}, ())
    assert env.render_mode == "rgb_array"


@pytest.mark.parametrize("toy", ["PixelCatch", "Sleeping", "Tagged"])
def test_the_toys_need_no_import(toy: str) -> None:
    program = f"from htsrl.envs.make import make_env; make_env('htsrl/{toy}-v0', {{}}, ())"
    # In a new process: here, another test may have imported the toys.
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, cwd=REPOSITORY)


def test_imports_may_register_the_environment(module_folder: Path) -> None:
    (module_folder / "registers_by_import.py").write_text(REGISTERING_MODULE.format(name="by_import"))
    assert isinstance(make_env("by_import/Own-v0", {}, ("registers_by_import",)).unwrapped, CartPoleEnv)


def test_the_module_before_a_colon_may_register_the_environment(module_folder: Path) -> None:
    (module_folder / "registers_by_colon.py").write_text(REGISTERING_MODULE.format(name="by_colon"))
    assert isinstance(make_env("registers_by_colon:by_colon/Own-v0", {}, ()).unwrapped, CartPoleEnv)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [("CartPoel-v1", "CartPole-v1"), ("CARTPOLE-V1", "CartPole-v1"), ("PixelCatch-v0", "htsrl/PixelCatch-v0")],
)
def test_an_unknown_environment_is_answered_with_near_matches(asked: str, meant: str) -> None:
    error = refusal(asked)
    assert repr(asked) in str(error)
    assert f"did you mean {meant}" in str(error)
    assert isinstance(error.__cause__, gymnasium.error.NameNotFound)


def test_an_unknown_environment_is_answered_with_a_hint_on_imports() -> None:
    message = str(refusal("NothingLikeIt-v0"))
    assert "did you mean" not in message
    assert "--import" in message


def test_an_unknown_namespace_is_answered_with_a_hint_on_imports() -> None:
    assert "--import my_package" in str(refusal("NoSuchNamespace/Pong-v5"))


@pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")
@pytest.mark.parametrize(
    ("asked", "known"), [("CartPole-v9", "CartPole-v0 or CartPole-v1"), ("LunarLander-v2", "LunarLander-v3")]
)
def test_an_unknown_version_is_answered_with_the_known_ones(asked: str, known: str) -> None:
    error = refusal(asked)
    assert str(error).endswith(f"use {known}")
    assert isinstance(error.__cause__, gymnasium.error.Error)


def test_a_malformed_id_is_a_config_error() -> None:
    assert "'Cart Pole' is not a registered environment" in str(refusal("Cart Pole"))
    assert "there is no environment to play in" in str(refusal(""))


def test_a_missing_module_before_a_colon_is_named() -> None:
    error = refusal("no_such_module:Env-v0")
    assert "module 'no_such_module' cannot be imported" in str(error)
    assert "install no_such_module" in str(error)
    assert isinstance(error.__cause__, ModuleNotFoundError)


def test_a_missing_module_among_the_imports_is_named() -> None:
    error = refusal("CartPole-v1", imports=("no_such_module",))
    assert "module 'no_such_module' cannot be imported" in str(error)
    assert isinstance(error.__cause__, ModuleNotFoundError)


@pytest.mark.parametrize("statement", ["raise RuntimeError('no licence')", "raise SystemExit('no licence')"])
def test_a_module_that_fails_on_import_is_named_with_the_cause(module_folder: Path, statement: str) -> None:
    (module_folder / "fails_on_import.py").write_text(statement)
    error = refusal("CartPole-v1", imports=("fails_on_import",))
    assert "module 'fails_on_import' cannot be imported" in str(error)
    assert f"{type(error.__cause__).__name__}: no licence" in str(error)


def test_a_module_that_lacks_another_one_asks_for_the_other_one(module_folder: Path) -> None:
    (module_folder / "needs_another.py").write_text("import no_such_module")
    assert "install no_such_module" in str(refusal("CartPole-v1", imports=("needs_another",)))


def test_imports_given_as_one_string_are_refused() -> None:
    assert "use imports=('ale_py',)" in str(refusal("CartPole-v1", imports="ale_py"))  # type: ignore[arg-type]


def test_a_package_that_is_not_installed_is_answered_with_gymnasiums_install_hint() -> None:
    def needs_a_simulator() -> None:
        raise gymnasium.error.DependencyNotInstalled("run `pip install simulator`")

    error = refusal(needs_a_simulator)
    assert "needs a package that is not installed" in str(error)
    assert "run `pip install simulator`" in str(error)
    assert isinstance(error.__cause__, gymnasium.error.DependencyNotInstalled)


def test_an_entry_point_that_cannot_be_imported_is_named(module_folder: Path) -> None:
    gymnasium.register(id="Orphan-v0", entry_point="no_such_module:Env")
    error = refusal("Orphan-v0")
    assert "Orphan-v0 needs something that cannot be imported" in str(error)
    assert "install no_such_module" in str(error)


@pytest.mark.parametrize("env", ["CartPole-v1", "CartPole", CartPoleEnv])
@pytest.mark.filterwarnings("ignore:.*latest versioned environment")
def test_arguments_that_the_environment_does_not_take_are_named(env: Any) -> None:
    error = refusal(env, {"sutton_barto": True})
    assert "does not take env_args={'sutton_barto': True}" in str(error)
    assert "unexpected keyword argument 'sutton_barto'" in str(error)
    assert isinstance(error.__cause__, TypeError)


@pytest.mark.parametrize("env", ["CartPole-v1", CartPoleEnv])
def test_the_arguments_that_the_environment_would_take_are_listed(env: Any) -> None:
    assert "it takes sutton_barto_reward=False, render_mode=None" in str(refusal(env, {"sutton_barto": True}))


def test_an_argument_that_the_environment_refuses_is_told_in_its_own_words() -> None:
    assert str(refusal("htsrl/Sleeping-v0", {"law": "uniform"})).startswith("law='uniform' is not exponential")


def test_whatever_else_a_constructor_raises_is_named_with_the_arguments() -> None:
    def breaks(level: int) -> None:
        raise KeyError(level)

    error = refusal(breaks, {"level": 7})
    assert "breaks could not be made with env_args={'level': 7}: KeyError: 7" in str(error)
    assert isinstance(error.__cause__, KeyError)


class OldGymEnv:
    """Stands in for an environment of the package `gym`."""

    __module__ = "gym.core"


@pytest.mark.parametrize(
    ("returned", "way_out"),
    [
        (None, "does the function return"),
        (CartPoleEnv, "the class CartPoleEnv, not an environment; return CartPoleEnv(...)"),
        (gymnasium.make_vec("CartPole-v1"), "return a single one"),
        (OldGymEnv(), "shimmy"),
        ("CartPole-v1", "something of type str, which is no gymnasium.Env"),
    ],
    ids=["none", "class", "vector", "old gym", "string"],
)
def test_a_callable_that_returns_no_environment_is_told_so(returned: Any, way_out: str) -> None:
    def my_factory() -> Any:
        return returned

    message = str(refusal(my_factory))
    assert "my_factory returned" in message
    assert way_out in message


def test_a_registered_creator_that_returns_no_environment_is_told_so(module_folder: Path) -> None:
    gymnasium.register(id="Stranger-v0", entry_point=lambda: "no environment")  # type: ignore[arg-type]
    error = refusal("Stranger-v0")
    assert "Stranger-v0 could not be made" in str(error)
    assert "must inherit from the gymnasium.Env" in str(error)


def test_something_that_is_neither_id_nor_callable_is_refused() -> None:
    assert "env=3 is neither" in str(refusal(3))
