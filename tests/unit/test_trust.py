"""A folder that htsrl did not write for this user runs no code of its own, unless the user says so."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import htsrl
from htsrl import A2C, DQN, Config, ConfigError, Experiment, Network, Placement, UntrustedFolder, evaluate
from htsrl.cli.main import main
from htsrl.runs import folder as run_folder
from htsrl.runs.folder import RunFolder
from htsrl.runs.private_file import write_private
from htsrl.runs.signatures import key_file, sign, signature_file, why_unsigned
from htsrl.runs.trust import NOTHING, Vouched, strange_code

MODULE = """
import gymnasium
imported = True

def make(**arguments):
    return gymnasium.make("CartPole-v1", max_episode_steps=5)
"""


@pytest.fixture
def own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Become another user, by name."""

    def become(user: str) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / user))

    become("me")
    return become


@pytest.fixture
def run_dir(tmp_path: Path, own_key: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run on a callable of a module that nobody has imported since."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "their_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    import their_module  # type: ignore[import-not-found]

    experiment = Experiment(their_module.make, algorithm=A2C(), num_envs=2, total_steps=20)
    quietly = Placement("inline", run_dir=tmp_path / "run", tensorboard=False, progress="off")
    htsrl.train(Config(experiment, quietly))
    del sys.modules["their_module"]
    return tmp_path / "run"


def edit(run_dir: Path, **experiment: Any) -> None:
    document = json.loads((run_dir / "config.json").read_text())
    document["experiment"] |= experiment
    (run_dir / "config.json").write_text(json.dumps(document))


def make_cartpole(**arguments: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1", max_episode_steps=5)


def test_a_folder_of_ones_own_needs_no_flag(run_dir: Path) -> None:
    assert evaluate(run_dir, episodes=1).lengths == (5,)
    assert why_unsigned(run_dir / "config.json", (run_dir / "config.json").read_bytes()) is None


@pytest.mark.parametrize("command", ["evaluate", "resume"])
def test_the_folder_of_another_is_refused_before_anything_is_imported(
    run_dir: Path, own_key: Callable[[str], None], command: str
) -> None:
    own_key("you")
    with pytest.raises(
        UntrustedFolder, match=r"names code to run: the environment 'callable their_module:make'.*--trust"
    ):
        getattr(htsrl, command)(run_dir)
    assert "their_module" not in sys.modules
    assert evaluate(run_dir, episodes=1, trust=True).lengths == (5,)


def test_an_environment_that_the_caller_gives_is_trusted(run_dir: Path, own_key: Callable[[str], None]) -> None:
    own_key("you")
    assert evaluate(run_dir, episodes=1, env=make_cartpole).lengths == (5,)
    assert "their_module" not in sys.modules


def test_a_configuration_that_was_changed_is_not_ones_own_any_more(run_dir: Path) -> None:
    edit(run_dir, env="callable os:system", env_args={"command": f"touch {run_dir}/canary"})
    with pytest.raises(UntrustedFolder, match=r"its signature is not yours.*'callable os:system'"):
        evaluate(run_dir)
    assert not (run_dir / "canary").exists()


def test_the_spaces_are_in_the_folder_so_a_policy_is_loaded_without_any_code(
    run_dir: Path, own_key: Callable[[str], None]
) -> None:
    own_key("you")
    assert htsrl.load_policy(run_dir).version == 2
    assert "their_module" not in sys.modules


@pytest.mark.parametrize("read", [htsrl.load_policy, htsrl.export], ids=lambda read: read.__name__)
def test_a_policy_of_an_algorithm_that_draws_actions_itself_is_loaded_without_the_schedules_code(
    tmp_path: Path, own_key: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], Any]
) -> None:
    algorithm = DQN(minibatch_size=4, learning_starts=8, replay_capacity=64)
    experiment = Experiment("CartPole-v1", algorithm=algorithm, num_envs=2, sync_interval=8, total_steps=16)
    quietly = Placement("inline", run_dir=tmp_path / "run", tensorboard=False, progress="off")
    htsrl.train(Config(experiment, quietly))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "their_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    edit(tmp_path / "run", schedule="their_module:make")
    own_key("you")
    assert read(tmp_path / "run")
    assert "their_module" not in sys.modules


def test_a_folder_of_known_simulators_alone_is_anybodys(run_dir: Path, own_key: Callable[[str], None]) -> None:
    own_key("you")
    edit(run_dir, env="CartPole-v1", env_args={"max_episode_steps": 4})
    assert evaluate(run_dir, episodes=1).lengths == (4,)


@pytest.mark.parametrize(
    ("experiment", "named"),
    [
        (Experiment("callable os:system"), "callable os:system"),
        (Experiment("evil:CartPole-v1"), "the module 'evil'"),
        (Experiment("pettingzoo/evil"), "pettingzoo/evil"),
        (Experiment("CartPole-v1", imports=("evil",)), "the module 'evil'"),
        (Experiment("CartPole-v1", network=Network(policy="evil:Net")), "the network 'evil:Net'"),
        (Experiment("HalfCheetah-v5", env_args={"xml_file": "./evil.xml"}), "xml_file"),
        (Experiment("language/rlhf", env_args={"model": "model"}), "the environment 'language/rlhf'"),
        (Experiment("CartPole-v1", env_args={"reward_funcs": ["evil:score"]}), "reward_funcs"),
        (Experiment("CartPole-v1", env_args={"model": "/somewhere/model"}), "the environment's argument model"),
        (Experiment("CartPole-v1", env_args={"deep": [{"x": "evil:make"}]}), "deep"),
    ],
    ids=str,
)
def test_code_is_found_wherever_it_is_named(experiment: Experiment, named: str) -> None:
    (found,) = strange_code(experiment, NOTHING)
    assert named in found


def test_what_the_user_names_is_not_strange() -> None:
    assert not list(strange_code(Experiment("CartPole-v1", imports=("json",)), Vouched(imports=("json",))))
    assert not list(strange_code(Experiment("json:CartPole-v1"), Vouched(imports=("json",))))
    assert not list(strange_code(Experiment("callable os:system"), Vouched(env=True)))
    arguments = Experiment("callable os:system", env_args={"command": "/bin/evil"})
    assert [*strange_code(arguments, Vouched(env=True))] == ["the environment's argument command='/bin/evil'"]
    assert list(strange_code(Experiment("x", network=Network(policy="json:Net")), Vouched(env=True, imports=("json",))))


def test_the_commands_say_whose_code_they_run(
    run_dir: Path, own_key: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, code, said in (
        ([], 0, "runs code of yours: the environment 'callable their_module:make', which"),
        (["--env", "CartPole-v1", "--env-is-no-flag"], 2, ""),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["eval", str(run_dir), "--episodes", "1", *arguments])
        assert ended.value.code == code
        assert said in capsys.readouterr().err
    own_key("you")
    with pytest.raises(SystemExit) as ended:
        main(["eval", str(run_dir), "--episodes", "1"])
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_a_cluster_is_not_joined_because_a_stranger_says_so(
    run_dir: Path, own_key: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    edit(run_dir, env="CartPole-v1", env_args={})
    document = json.loads((run_dir / "config.json").read_text())
    document["placement"] |= {"backend": "ray", "ray_address": "10.0.0.1:6379"}
    (run_dir / "config.json").write_text(json.dumps(document))
    own_key("you")
    resume, train = ["resume", str(run_dir), "--total-steps", "64"], ["train", "--config", str(run_dir / "config.json")]
    for arguments, is_strange in ((resume, True), (train, True), ([*train, "--ray-address", "no place"], False)):
        with pytest.raises(SystemExit):
            main(arguments)
        named = "names code to run: that of the Ray cluster '10.0.0.1:6379'" in capsys.readouterr().err
        assert named == is_strange
    with pytest.raises(ConfigError, match="resumed only as the experiment that it was"):
        htsrl.resume(run_dir, placement=Placement("inline"))


@pytest.mark.parametrize("make", [lambda path, aim: path.symlink_to(aim), lambda path, aim: os.mkfifo(path)])
def test_nothing_is_written_through_the_links_of_a_stranger(
    run_dir: Path, tmp_path: Path, own_key: Callable[[str], None], make: Callable[[Path, Path], None]
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine\n")
    (run_dir / "metrics.jsonl").unlink()
    make(run_dir / "metrics.jsonl", precious)
    own_key("you")
    with pytest.raises(UntrustedFolder, match=r"metrics.jsonl is a link, a pipe or a device"):
        htsrl.resume(run_dir, total_steps=64, env=make_cartpole)
    assert precious.read_text() == "mine\n"


def test_train_treats_a_file_of_settings_alike(
    run_dir: Path, tmp_path: Path, own_key: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    own_key("you")
    # A bad number is complained of only once the code was admitted.
    arguments = ["train", "--config", str(run_dir / "config.json"), "--num-envs", "0"]
    for more, complaint in (
        ([], "names code to run"),
        (["--trust"], "num_envs=0"),
        (["CartPole-v1"], "num_envs=0"),
    ):
        with pytest.raises(SystemExit):
            main([*arguments, *more])
        assert complaint in capsys.readouterr().err


def test_a_word_of_the_command_line_vouches_for_no_module(
    run_dir: Path, own_key: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    own_key("you")
    edit(run_dir, env="CartPole-v1", imports=["train"])
    arguments = ["train", "--config", str(run_dir / "config.json"), "--num-envs", "0"]
    for more, complaint in (
        ([], "names code to run: the module 'train'"),
        (["--import", "train"], "module 'train' cannot be imported"),  # admitted, but there is none here
    ):
        with pytest.raises(SystemExit):
            main([*arguments, *more])
        assert complaint in capsys.readouterr().err


def test_the_key_is_the_users_alone(own_key: Callable[[str], None]) -> None:
    first = sign(b"x")
    assert key_file().stat().st_mode & 0o777 == 0o600
    assert sign(b"x") == first
    assert sign(b"y") != first
    own_key("you")
    assert sign(b"x") != first
    key_file().chmod(0o644)
    assert sign(b"x") is None, "others could have read it"


def test_without_a_key_folders_are_written_and_not_trusted(
    tmp_path: Path, own_key: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    folder = RunFolder(tmp_path)
    folder.save_config(Config(Experiment("CartPole-v1")))
    assert not signature_file(folder.config_file).exists()
    assert why_unsigned(folder.config_file, b"") == "it has no signature"


def test_a_kill_between_signature_and_configuration_leaves_a_signed_one(
    tmp_path: Path, own_key: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    folder.save_config(Config(Experiment("CartPole-v1")))
    before = folder.config_file.read_bytes()
    folder.save_config(Config(Experiment("Acrobot-v1")))
    now = folder.config_file.read_bytes()
    assert why_unsigned(folder.config_file, before) is None
    assert why_unsigned(folder.config_file, now) is None
    assert why_unsigned(folder.config_file, b"{}") == "its signature is not yours"


class Killed(BaseException):
    """In place of a SIGKILL."""


def test_kills_between_signature_and_configuration_in_a_row_leave_a_signed_one(
    tmp_path: Path, own_key: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, write = RunFolder(tmp_path), write_private
    folder.save_config(Config(Experiment("CartPole-v1")))

    def write_no_configuration(path: Path, data: bytes) -> None:
        if path == folder.config_file:
            raise Killed
        write(path, data)

    monkeypatch.setattr(run_folder, "write_private", write_no_configuration)
    for seed in (2, 3, 4):
        with pytest.raises(Killed):
            folder.save_config(Config(Experiment("CartPole-v1", seed=seed)))
        assert why_unsigned(folder.config_file, folder.config_file.read_bytes()) is None
    assert len(signature_file(folder.config_file).read_text().splitlines()) == 2


def test_two_policies_at_once_are_refused(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["eval", str(run_dir), "--best", "--version", "3"])
    assert ended.value.code == 2
    assert "--best and --version 3" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="must be newest, best"):
        evaluate(run_dir, checkpoint="worst")  # type: ignore[arg-type]
