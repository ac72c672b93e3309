"""What somebody else's run folder may hold: files that were cut, noise, and documents that were written to do harm."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from checkpoint_damage import DAMAGES as CHECKPOINT_DAMAGES
from checkpoint_damage import HUGE, Scene, forged_header_noise, pick
from numpy.random import Generator

from htsrl.array_file import to_pieces
from htsrl.checkpoint.manifest import MANIFEST_FILE, STATE_FILE, FileSum, Manifest
from htsrl.checkpoint.segments import HELD

Files = dict[str, bytes]
"""By path within the run's folder."""
CANARY = "htsrl_canary"
"""A module that is there to be imported, and must not be."""
EVIL_TEXTS = (
    "callable os:system",
    f"callable {CANARY}:make",
    f"{CANARY}:Evil-v0",
    f"{CANARY}:make",
    CANARY,
    f"pettingzoo/{CANARY}",
    "GymV26Environment-v0",
    "../../../etc/passwd",
    "\x1b[2J",
    "x" * 5000,
    "",
    "\ud800",
)
EVIL_VALUES: tuple[Any, ...] = (
    *EVIL_TEXTS,
    *HUGE,
    -1,
    0,
    1e308,
    float("nan"),
    float("inf"),
    None,
    True,
    [],
    {},
    [[]],
    [CANARY],
    -(2**63),
)
SETTINGS_WITH_CODE: tuple[tuple[tuple[str, ...], Any], ...] = (
    (("experiment", "env"), "callable os:system"),
    (("experiment", "env"), f"callable {CANARY}:make"),
    (("experiment", "env"), f"{CANARY}:Evil-v0"),
    (("experiment", "env"), f"pettingzoo/{CANARY}"),
    (("experiment", "imports"), [CANARY]),
    (("experiment", "network", "policy"), f"{CANARY}:make"),
    (("experiment", "env_args"), {"xml_file": "/tmp/evil.xml"}),
    (("experiment", "algorithm"), {"name": f"{CANARY}:make"}),
    (("experiment", "schedule"), f"{CANARY}:make"),
    (("experiment", "sync_rule"), f"{CANARY}:make"),
    (("experiment", "lanes"), f"{CANARY}:make"),
    (("experiment", "source"), f"{CANARY}:make"),
    (("experiment", "init_from"), f"{CANARY}:make"),
    (("experiment",), {"env": "language/rlhf", "env_args": {"model": CANARY, "reward_funcs": [f"{CANARY}:make"]}}),
)


class Payload:
    """Imports the canary when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, (CANARY,)


def documents(files: Files) -> list[str]:
    return [name for name in files if name.endswith((".json", ".jsonl")) and not name.startswith("checkpoints")]


def changed(files: Files, name: str, change: Callable[[Any], Any]) -> Files:
    """The file with one of its documents changed: all of it, or a line."""
    *lines, _ = files[name].split(b"\n") if name.endswith(".jsonl") else (files[name], b"")
    lines[0] = json.dumps(change(json.loads(lines[0]))).encode()
    return files | {name: b"\n".join([*lines, b""])}


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to everything in a document."""
    parts = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [path, *(place for key, part in parts for place in places(part, (*path, key)))]


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    document[path[0]] = put(document[path[0]], path[1:], value)
    return document


def another_value(rng: Generator, files: Files) -> Files:
    """Something else in any place of a document."""

    def change(document: Any) -> Any:
        there = places(document)
        return put(document, there[int(rng.integers(len(there)))], pick(rng, EVIL_VALUES))

    return changed(files, str(rng.choice(documents(files))), change)


def named_code(rng: Generator, files: Files) -> Files:
    """A configuration that names code, and otherwise makes sense."""
    path, value = pick(rng, SETTINGS_WITH_CODE)
    return changed(files, "config.json", lambda document: put(document, path, value))


def missing_or_more_keys(rng: Generator, files: Files) -> Files:
    def change(document: Any) -> Any:
        parts = document.values() if isinstance(document, dict) else document
        sections = [x for x in (document, *parts) if isinstance(x, dict) and x]
        section = sections[int(rng.integers(len(sections)))]
        section.pop(str(rng.choice(list(section)))) if rng.random() < 0.7 else section.update(
            more=pick(rng, EVIL_VALUES)
        )
        return document

    return changed(files, str(rng.choice(documents(files))), change)


def cut_file(rng: Generator, files: Files) -> Files:
    name = str(rng.choice(list(files)))
    return files | {name: files[name][: rng.integers(len(files[name]) or 1)]}


def flipped_bits(rng: Generator, files: Files) -> Files:
    name = str(rng.choice([name for name in files if files[name]]))
    bits = np.unpackbits(np.frombuffer(files[name], np.uint8))
    bits[rng.choice(len(bits), int(rng.integers(1, 9)), replace=False)] ^= 1
    return files | {name: np.packbits(bits).tobytes()}


def noise_or_nesting(rng: Generator, files: Files) -> Files:
    depth = int(10 ** rng.uniform(3, 5))
    data = pick(
        rng, (rng.bytes(300), b"[" * depth, b'{"a":' * depth, b"9" * depth, b"null\n", b"[]\n", b"7\n", b"\xff\n")
    )
    return files | {str(rng.choice(list(files))): data + pick(rng, (b"", b"\n"))}


def missing_file(rng: Generator, files: Files) -> Files:
    gone = str(rng.choice(list(files)))
    return {name: data for name, data in files.items() if name != gone}


def pickled(rng: Generator, files: Files) -> Files:
    data = pickle.dumps(Payload(), protocol=int(rng.integers(pickle.HIGHEST_PROTOCOL + 1)))
    return files | {str(rng.choice(list(files))): data}


def swapped_lines(rng: Generator, files: Files) -> Files:
    name = str(rng.choice([name for name in files if name.endswith(".jsonl")]))
    lines = files[name].split(b"\n")
    return files | {name: b"\n".join(lines[i] for i in rng.permutation(len(lines)))}


def damaged_checkpoint(rng: Generator, files: Files) -> Files:
    """As in checkpoint_damage, also with sums that are right."""
    folder = str(rng.choice(sorted({name.rpartition("/")[0] for name in files if name.startswith("checkpoints/")})))
    own = {name: files[f"{folder}/{name}"] for name in (STATE_FILE, MANIFEST_FILE)}
    segments = [name for name in files if name.startswith(f"{folder}/rollouts-")]
    if segments and rng.random() < 0.5:
        return forged_segments(rng, files, folder, segments)
    damage: Any = pick(rng, (*CHECKPOINT_DAMAGES, forged_header_noise))
    made = damage(rng, Scene(own, own, canary=Path("never-written")))
    others = {name: data for name, data in files.items() if not name.startswith(f"{folder}/") or name in segments}
    return others | {f"{folder}/{name}": data for name, data in made.items()}


def forged_segments(rng: Generator, files: Files, folder: str, names: list[str]) -> Files:
    """Segments of a replay buffer of other ranges, rooms and arrays than the run's, whose sums are all right."""
    manifest = Manifest.from_bytes(files[f"{folder}/{MANIFEST_FILE}"])
    forged = {name.rpartition("/")[2]: files[name] for name in names}
    document = dict(manifest.document)
    for _ in range(int(rng.integers(1, 4))):
        name = str(rng.choice(list(forged)))
        match int(rng.integers(4)):
            case 0:
                first, end = (int(pick(rng, (0, 1, 2, 3, 4, 10**9, 10**14))) for _ in range(2))
                forged[f"rollouts-{first:09d}-{end:09d}.safetensors"] = forged.pop(name)
            case 1:
                document[HELD] = pick(rng, (0, 1, 2, 10**6, 10**14, *HUGE, -1, True, None, 1.5, "2"))
            case 2:
                document["version"] = pick(rng, (0, 1, 2, 3, 10**9, 10**14, *HUGE))
            case _:
                shape = tuple(int(pick(rng, (0, 1, 2, 3, 16, 64))) for _ in range(int(rng.integers(4))))
                array = np.ones(shape, pick(rng, (np.uint8, np.float32)))
                which = str(rng.choice(["replay/actions", "replay/obs", "another", "version 3/slots"]))
                forged[name] = b"".join(to_pieces({which: array}))
    sums = {name: FileSum(len(data), hashlib.sha256(data).hexdigest()) for name, data in forged.items()}
    others = {name: data for name, data in files.items() if name not in names}
    made = {f"{folder}/{name}": data for name, data in forged.items()}
    return others | made | {f"{folder}/{MANIFEST_FILE}": Manifest(document, manifest.state, sums).to_bytes()}


DAMAGES: tuple[Callable[[Generator, Files], Files], ...] = (
    another_value,
    another_value,
    another_value,
    named_code,
    missing_or_more_keys,
    cut_file,
    flipped_bits,
    noise_or_nesting,
    missing_file,
    pickled,
    swapped_lines,
    damaged_checkpoint,
)
