"""`htsrl export`: from the folder of a run to a folder with its policy in formats that others read."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from htsrl.config import EnvFactory
from htsrl.config.file import env_name
from htsrl.dataflow.trajectory import RECURRENT_STATE
from htsrl.errors import ConfigError
from htsrl.export.check import check, example_observations
from htsrl.export.description import as_json, description
from htsrl.export.signature import signature_of
from htsrl.numerics import single_threaded
from htsrl.processes.current_folder import current_folder_kept
from htsrl.runs.folder import RunFolder
from htsrl.runs.load_policy import load_policy
from htsrl.runs.saved_policy import Choice

if TYPE_CHECKING:
    from htsrl.export.formats import Format
    from htsrl.policies.policy import Policy

Announce = Callable[[str], None]
"""Told what takes some seconds, before it begins."""
NUM_TRACED = 2  # a single row would be taken for a constant


@dataclass(frozen=True)
class Exported:
    """What was written, after it was found to do what the policy does."""

    folder: Path
    version: int
    """How many updates the policy has learned from."""
    source: Path
    """The file or the checkpoint that it was read from."""
    differences: Mapping[str, float]
    """By file, the largest difference from the policy's own numbers, as a part of 1 plus their size."""


def export(
    run_dir: Path | str,
    output: Path | str | None = None,
    format: Literal["onnx", "torch", "both"] = "both",  # noqa: A002
    env: str | EnvFactory | None = None,
    checkpoint: Choice = "newest",
    imports: Sequence[str] = (),
    trust: bool = False,
    announce: Announce = lambda stage: None,
) -> Exported:
    """Write a run's policy to the new folder `output` (RUN_DIR/export), as ONNX and as a torch.export program.

    `announce` is told of stages that may take seconds. The other arguments are those of `htsrl.load_policy`.
    """
    if format not in ("onnx", "torch", "both"):
        raise ConfigError(f"format={format!r} must be onnx, torch or both")
    folder = RunFolder.existing(Path(run_dir))
    shown = folder.shown / "export" if output is None else Path(output)
    target = shown.absolute()
    if target.exists():
        raise ConfigError(f"output={shown} exists already; choose another, or remove it")
    if format != "torch":
        from htsrl.export.formats import require_onnx

        require_onnx()
    with current_folder_kept(), single_threaded():
        announce(f"reading the policy of {folder.shown}")
        trained = load_policy(run_dir, checkpoint, env, imports, trust)
        about = {"env": env_name(folder.load_config(env).experiment.env), "version": trained.version}
        forms: Sequence[Format] = ("onnx", "torch") if format == "both" else (format,)
        differences = write(trained.policy, target, forms, about, announce)
    return Exported(shown, trained.version, trained.source, differences)


def write(
    policy: Policy,
    target: Path,
    forms: Sequence[Format],
    about: Mapping[str, object],
    announce: Announce = lambda stage: None,
) -> dict[str, float]:
    """Write `policy` to the new folder `target`, all of it or nothing; the largest difference by file."""
    import torch

    import htsrl
    from htsrl.export.formats import FILES, runner, serialized, traced
    from htsrl.export.graph import Graph
    from htsrl.policies.half_precision import compute_in_float32

    policy.eval().requires_grad_(False)
    compute_in_float32(policy)  # who runs the files may have no bfloat16
    signature = signature_of(policy.interface, policy.state_size)
    examples = {
        signature.inputs[field].name: torch.from_numpy(array[0, :NUM_TRACED].copy())
        for field, array in example_observations(policy).items()
    }
    if signature.state_size:
        examples[RECURRENT_STATE] = torch.zeros(NUM_TRACED, signature.state_size)
    announce(f"exporting version {about.get('version')}")
    program = traced(Graph(policy, signature), examples)
    files = {FILES[form]: serialized(program, signature, form) for form in forms}
    announce("checking it against the policy")
    differences = check(policy, signature, {FILES[form]: runner(files[FILES[form]], form) for form in forms})
    document = {"htsrl": htsrl.__version__, **about, "files": list(files), **description(signature)}
    files["policy.json"] = as_json(document).encode()
    _publish(files, target)
    return differences


def _publish(files: Mapping[str, bytes], target: Path) -> None:
    """A folder appears with all its files in it, for nobody else to read."""
    try:
        target.parent.mkdir(0o700, parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            for name, data in files.items():
                _write(temporary / name, data)
            os.rename(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise ConfigError(f"cannot make output={target}: {error.strerror}: {error.filename}") from error


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
