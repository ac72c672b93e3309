"""What is exported does what the policy does, in whatever runtime it is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

import htsrl
from htsrl.cli.main import main
from htsrl.config import Network
from htsrl.errors import ConfigError, RunFolderError
from htsrl.export import ExportFailed, export, formats
from htsrl.export import graph as graph_of_export
from htsrl.export.check import TOLERANCE, Arrays, Run, check
from htsrl.export.folder import write
from htsrl.export.signature import Signature, signature_of
from htsrl.policies.normalization import RewardScale
from htsrl.policies.policy import Policy, build_policy

onnxruntime = pytest.importorskip("onnxruntime")

VECTOR = spaces.Box(-1, 1, (4,))
IMAGE = spaces.Box(0, 255, (36, 37, 1), np.uint8)
EVERYTHING = spaces.Dict(
    {
        "where am I?": spaces.Tuple((spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 3], start=[4, 0]))),
        "camera": IMAGE,
        "keys": spaces.MultiBinary(3),
        "half": spaces.Box(0, 1, (2,), np.float16),
        "double": spaces.Box(0, 1, (2,), np.float64),
    }
)
HYBRID = spaces.Dict(
    gear=spaces.Discrete(5, start=-1),
    wheel=spaces.Box(np.array([-2, -np.inf], np.float32), np.array([3, 0.001], np.float32)),
    keys=spaces.Tuple((spaces.MultiBinary([2, 2]), spaces.MultiDiscrete([2, 3], start=[1, 5]))),
    fine=spaces.Box(-1000, 1000, (1, 2), np.float64),
    mask=spaces.Discrete(2),
)
MASKED = spaces.Dict(x=VECTOR, action_mask=spaces.MultiBinary(5))
MASKED_HYBRID = spaces.Dict(seen=EVERYTHING, action_mask=spaces.MultiBinary(20))

KINDS: dict[str, tuple[spaces.Space[Any], spaces.Space[Any], Network]] = {
    "plain": (VECTOR, spaces.Discrete(3, start=7), Network()),
    "normalised and squashed": (
        spaces.Box(-1, 1, (4,), np.float64),
        spaces.Box(-2, 2, (3,)),
        Network(normalize_observations=True, bounded_actions="squash"),
    ),
    "Nature CNN": (IMAGE, spaces.Discrete(6), Network()),
    "IMPALA": (spaces.Box(0, 255, (3, 12, 13), np.uint8), spaces.Discrete(6), Network(encoder="impala")),
    "mask and LSTM": (MASKED, spaces.MultiDiscrete([2, 3]), Network(recurrent="lstm", recurrent_size=16)),
    "GRU, clipped": (VECTOR, spaces.Box(-0.001, 0.001, (2,)), Network(recurrent="gru", recurrent_size=16)),
    "everything": (
        MASKED_HYBRID,
        HYBRID,
        Network(recurrent="lstm", recurrent_size=16, bounded_actions="squash", normalize_observations=True),
    ),
}


def policy_of(kind: str, seed: int = 0) -> Policy:
    """One whose statistics are those of observations far from 0, and whose choices are clear."""
    policy = build_policy(*KINDS[kind], seed)
    if policy.observation_scales is not None:
        policy.reward_scale = RewardScale(0)
        generator = torch.Generator().manual_seed(seed)
        for name, buffer in policy.observation_scales.named_buffers():
            if name.endswith("mean"):
                buffer.copy_(100 * torch.randn(buffer.shape, generator=generator))
            if name.endswith("variance"):
                buffer.copy_(10 * torch.rand(buffer.shape, generator=generator) + 1)
    policy.action_head.weight.data.mul_(100)
    return policy


def assembled(structure: Any, space: spaces.Space[Any], outputs: Arrays) -> Any:
    """The action of the first row, as docs/export.md says."""
    if isinstance(space, spaces.Dict):
        return {key: assembled(structure[key], part, outputs) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(assembled(structure[i], part, outputs) for i, part in enumerate(space.spaces))
    return outputs[structure][0]


def blank_inputs(ports: list[dict[str, Any]], rows: int) -> dict[str, Any]:
    return {port["name"]: np.ones((rows, *port["shape"][1:]), port["dtype"]) for port in ports}


@pytest.mark.parametrize(
    "kind",  # "everything" has the mask and the LSTM too
    [pytest.param(kind, marks=pytest.mark.slow) if kind == "mask and LSTM" else kind for kind in KINDS],
)
def test_a_policy_of_every_kind_is_exported(kind: str, tmp_path: Path) -> None:
    policy = policy_of(kind)
    differences = write(policy, tmp_path / "export", ("onnx", "torch"), {"env": "Test-v0"})
    assert set(differences) == {"policy.onnx", "policy.pt2"}
    assert max(differences.values()) < TOLERANCE
    if kind == "Nature CNN":
        assert differences["policy.pt2"] == 0.0, "the same kernels in the same order"

    described = json.loads((tmp_path / "export" / "policy.json").read_bytes())
    session = onnxruntime.InferenceSession(tmp_path / "export" / "policy.onnx")
    for ports, described_ports in (
        (session.get_inputs(), described["inputs"]),
        (session.get_outputs(), described["outputs"]),
    ):
        assert [(port.name, port.shape) for port in ports] == [
            (port["name"], port["shape"]) for port in described_ports
        ]

    inputs = {name: array * 4 for name, array in blank_inputs(described["inputs"], 3).items() if name.startswith("obs")}
    inputs = {**blank_inputs(described["inputs"], 3), **inputs}
    outputs = dict(zip([output["name"] for output in described["outputs"]], session.run(None, inputs), strict=True))
    action = assembled(described["action"], policy.interface.action_space, outputs)
    assert policy.interface.action_space.contains(action)


def run_of(policy: Policy) -> tuple[Run, Signature]:
    """What the policy's graph computes, before it is exported."""
    signature = signature_of(policy.interface, policy.state_size)
    graph = graph_of_export.Graph(policy.requires_grad_(False), signature)

    def run(inputs: Arrays) -> Arrays:
        outputs = graph({name: torch.from_numpy(array) for name, array in inputs.items()})
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    return run, signature


def test_the_check_notices_other_weights_and_statistics() -> None:
    run, signature = run_of(policy_of("normalised and squashed", seed=1))
    with pytest.raises(ExportFailed, match=r"policy\.pt2 computes another mean than the policy: they differ by"):
        check(policy_of("normalised and squashed"), signature, {"policy.pt2": run})


def test_the_check_notices_a_forgotten_mask_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_of_export, "masked", lambda logits, _: logits)
    with pytest.raises(ExportFailed, match=r"policy\.onnx computes another logits"):
        write(policy_of("mask and LSTM"), tmp_path / "export", ("onnx",), {})
    assert list(tmp_path.iterdir()) == []


def test_the_check_notices_a_memory_that_forgets() -> None:
    policy = policy_of("mask and LSTM")
    run, signature = run_of(policy)
    forgetting: Run = lambda inputs: run({**inputs, "memory": np.zeros_like(inputs["memory"])})  # noqa: E731
    with pytest.raises(ExportFailed, match="computes another"):
        check(policy, signature, {"it": forgetting})


def test_the_check_notices_actions_that_do_not_follow_the_logits() -> None:
    policy = policy_of("plain")
    run, signature = run_of(policy)
    with pytest.raises(ExportFailed, match=r"chooses other values than the policy in \d+ cases"):
        check(policy, signature, {"it": lambda inputs: {**run(inputs), "action": run(inputs)["action"] - 7}})


def test_a_tie_may_be_decided_either_way() -> None:
    policy = policy_of("plain")
    policy.action_head.weight.data.zero_()
    run, signature = run_of(policy)
    other: Run = lambda inputs: {**run(inputs), "action": run(inputs)["action"] + 1}  # noqa: E731
    assert check(policy, signature, {"it": other}) == {"it": 0.0}


class LooksAtValues(nn.Module):
    """Takes another way by what it sees, which no graph can."""

    num_features = 4

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__()

    def forward(self, obs: Tensor) -> Tensor:
        return obs if obs.sum() > 0 else -obs


class CountsRows(nn.Module):
    """Uses len() of a tensor, as people do."""

    num_features = 8

    def __init__(self, space: spaces.Dict) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, obs: Mapping[str, Tensor]) -> Tensor:
        features: Tensor = self.layer(obs["x"].reshape(len(obs["x"]), -1))
        return features


def test_a_network_of_ones_own_is_exported_or_refused_in_a_line(tmp_path: Path) -> None:
    counting = build_policy(MASKED, spaces.MultiDiscrete([2, 3]), Network(policy=CountsRows), seed=0)
    assert write(counting, tmp_path / "export", ("onnx",), {})["policy.onnx"] < TOLERANCE
    looking = build_policy(VECTOR, spaces.Discrete(2), Network(policy=LooksAtValues), seed=0)
    with pytest.raises(ExportFailed, match="cannot trace this policy") as raised:
        write(looking, tmp_path / "another", ("torch",), {})
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "another").exists()


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    experiment = htsrl.Experiment("CartPole-v1", num_envs=2, sync_interval=16, total_steps=64)
    path = tmp_path_factory.mktemp("export") / "run"
    quietly = htsrl.Placement(backend="inline", run_dir=path, progress="off", tensorboard=False)
    return htsrl.train(htsrl.Config(experiment, quietly)).run_dir


def test_the_command_says_briefly_what_it_has_written_and_checked(
    run_dir: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "new" / "folder"
    with pytest.raises(SystemExit) as ended:
        main(["export", str(run_dir), "--output", str(output)])
    out, err = capfd.readouterr()
    assert ended.value.code == 0
    assert all(line.endswith(" ...") for line in err.splitlines()), err
    assert out.splitlines()[0] == f"policy       {output}, version 2 of {run_dir / 'policy.safetensors'}"
    assert out.count("the same actions as the policy on 1,000 observations, largest difference") == 2
    files = {path.name: path.stat().st_mode & 0o777 for path in output.iterdir()}
    assert files == {"policy.onnx": 0o600, "policy.pt2": 0o600, "policy.json": 0o600}
    assert not any(str(Path(htsrl.__file__).parent).encode() in path.read_bytes() for path in output.iterdir())
    described = json.loads((output / "policy.json").read_bytes())
    assert (described["env"], described["version"], described["observation"]) == ("CartPole-v1", 2, "obs")


def test_bad_input_is_named(run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunFolderError, match="is not the folder of a run"):
        export(tmp_path)
    with pytest.raises(ConfigError, match=r"output=.* exists already; choose another"):
        export(run_dir, tmp_path)
    with pytest.raises(ConfigError, match="format='pickle' must be onnx, torch or both"):
        export(run_dir, format="pickle")  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot make output=.*: File exists: .*file"):
        export(run_dir, tmp_path / "file" / "export", "torch")
    monkeypatch.setattr(formats, "find_spec", lambda name: None if name == "onnxscript" else name)
    with pytest.raises(ConfigError, match=r"not installed \(onnxscript\); pip install 'htsrl\[export\]'"):
        export(run_dir, tmp_path / "export")


def test_a_policy_that_is_missing_or_damaged_is_named(run_dir: Path, tmp_path: Path) -> None:
    broken = tmp_path / "run"
    broken.mkdir()
    for name in ("config.json", "result.json"):
        (broken / name).write_bytes((run_dir / name).read_bytes())
    with pytest.raises(RunFolderError, match=r"holds no policy\.safetensors"):
        export(broken)
    (broken / "policy.safetensors").write_bytes((run_dir / "policy.safetensors").read_bytes()[:100])
    with pytest.raises(RunFolderError, match=r"policy\.safetensors cannot be read as a policy"):
        export(broken)
    assert not (broken / "export").exists()
