"""What can happen to the two files of a checkpoint between writing and reading, by accident and on purpose."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from htsrl.checkpoint.manifest import MANIFEST_FILE, STATE_FILE, FileSum, Manifest

Files = dict[str, bytes]
HUGE = (2**31, 2**32 - 1, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


@dataclass(frozen=True)
class Scene:
    """A checkpoint to damage, another one of the same run, and a file that no reader may create."""

    files: Files
    others: Files
    canary: Path


Damage = Callable[[np.random.Generator, Scene], Files]
"""Returns files that differ from the scene's, whatever is drawn."""


@dataclass(frozen=True)
class _Payload:
    """Creates the canary when it is unpickled."""

    canary: str

    def __reduce__(self) -> tuple[Any, ...]:
        return os.open, (self.canary, os.O_CREAT | os.O_WRONLY)


def either(rng: np.random.Generator) -> str:
    return str(rng.choice([STATE_FILE, MANIFEST_FILE]))


def pick(rng: np.random.Generator, options: tuple[Any, ...]) -> Any:
    return options[int(rng.integers(len(options)))]


def honest(state: bytes, document: Any) -> Files:
    """The checkpoint that a forger would make: every sum is right."""
    manifest = Manifest(document, FileSum(len(state), hashlib.sha256(state).hexdigest()))
    return {STATE_FILE: state, MANIFEST_FILE: manifest.to_bytes()}


def sealed(content: dict[str, Any]) -> bytes:
    """A manifest of any content whose own sum is right."""

    def canonical() -> bytes:
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()

    content.pop("sha256", None)
    content["sha256"] = hashlib.sha256(canonical()).hexdigest()
    return canonical() + b"\n"


def document_of(files: Files) -> Any:
    return json.loads(files[MANIFEST_FILE])["document"]


def cut(rng: np.random.Generator, scene: Scene) -> Files:
    name = either(rng)
    return scene.files | {name: scene.files[name][: rng.integers(len(scene.files[name]))]}


def flipped_bits(rng: np.random.Generator, scene: Scene) -> Files:
    name = either(rng)
    bits = np.unpackbits(np.frombuffer(scene.files[name], np.uint8))
    bits[rng.choice(len(bits), rng.integers(1, 9), replace=False)] ^= 1
    return scene.files | {name: np.packbits(bits).tobytes()}


def inserted_bytes(rng: np.random.Generator, scene: Scene) -> Files:
    name = either(rng)
    data = scene.files[name]
    place = int(rng.integers(len(data) + 1))
    inserted = pick(rng, (b" ", b"\n", b"\0", rng.bytes(int(rng.integers(1, 100)))))
    return scene.files | {name: data[:place] + inserted + data[place:]}


def removed_bytes(rng: np.random.Generator, scene: Scene) -> Files:
    name = either(rng)
    data = scene.files[name]
    place = int(rng.integers(len(data)))
    return scene.files | {name: data[:place] + data[place + int(rng.integers(1, 100)) :]}


def replaced_by_noise(rng: np.random.Generator, scene: Scene) -> Files:
    return scene.files | {either(rng): rng.bytes(int(rng.integers(1000)))}


def missing_file(rng: np.random.Generator, scene: Scene) -> Files:
    kept = either(rng)
    return {kept: scene.files[kept]}


def swapped_files(rng: np.random.Generator, scene: Scene) -> Files:
    name = either(rng)
    among_themselves = {STATE_FILE: scene.files[MANIFEST_FILE], MANIFEST_FILE: scene.files[STATE_FILE]}
    twice_the_same = dict.fromkeys(scene.files, scene.files[name])
    return pick(  # type: ignore[no-any-return]
        rng, (scene.files | {name: scene.others[name]}, scene.others, among_themselves, twice_the_same)
    )


def pickles(rng: np.random.Generator, scene: Scene) -> Files:
    data = pickle.dumps(_Payload(str(scene.canary)), protocol=int(rng.integers(pickle.HIGHEST_PROTOCOL + 1)))
    state = len(data).to_bytes(8, "little") + data
    return pick(  # type: ignore[no-any-return]
        rng,
        (
            scene.files | {either(rng): data},
            dict.fromkeys(scene.files, data),
            honest(data, document_of(scene.files)),
            honest(state, document_of(scene.files)),
        ),
    )


def lying_manifest(rng: np.random.Generator, scene: Scene) -> Files:
    """Its own sum is right; what it says is not."""
    content = json.loads(scene.files[MANIFEST_FILE])
    entry = content["files"][STATE_FILE]
    size, sum_ = entry["bytes"], entry["sha256"]
    wrong = str(hashlib.sha256(rng.bytes(8)).hexdigest())
    change: Callable[[], Any] = pick(
        rng,
        (
            lambda: entry.update(bytes=size + pick(rng, (-size, -1, 1, 8, -2 * size, *HUGE))),
            lambda: entry.update(bytes=pick(rng, (float(size), str(size), None, [size], True))),
            lambda: entry.update(sha256=pick(rng, (wrong, sum_.upper(), sum_[:-1], "", None, 7, [sum_]))),
            lambda: entry.update(extra=rng.bytes(4).hex()),
            lambda: entry.pop(pick(rng, ("bytes", "sha256"))),
            lambda: content["files"].update({pick(rng, ("../../evil", "more.safetensors")): entry}),
            lambda: content["files"].update({STATE_FILE: pick(rng, (None, [], "x", 1))}),
            lambda: content["document"].update(version=pick(rng, (-1, 0, 6, 8, 7.0, "7", None, True, [7], *HUGE))),
            lambda: content["document"].pop("version"),
            lambda: content.update(document=pick(rng, (None, [], "x", 7, {}))),
            lambda: content.update(format=pick(rng, ("htsrl checkpoint 2", "", None, 1, "x" * 10_000))),
            lambda: content.update({rng.bytes(4).hex(): rng.bytes(4).hex()}),
            lambda: content.pop(pick(rng, ("format", "document", "files"))),
        ),
    )
    change()
    return scene.files | {MANIFEST_FILE: sealed(content)}


def hostile_manifest(rng: np.random.Generator, scene: Scene) -> Files:
    """What JSON parsers choke on, or what says the right thing in another way."""
    data = scene.files[MANIFEST_FILE]
    content = json.loads(data)
    depth = int(10 ** rng.uniform(3, 5))
    nested = pick(rng, (b"[" * depth, b"[" * depth + b"]" * depth, b'{"":' * depth + b"0" + b"}" * depth))
    number = pick(rng, (b"1e999", b"-1e999", b"NaN", b"Infinity", b"9" * depth, b"1" + b"0" * depth, b"-0"))
    reordered = json.dumps(dict(reversed(content.items())), separators=(",", ":")).encode() + b"\n"
    return scene.files | {
        MANIFEST_FILE: pick(
            rng,
            (
                nested,
                data.replace(b'"steps":', b'"steps":' + nested + b',"more":'),
                data.replace(b'"version":7', b'"version":' + number),
                data.replace(b'"version":7', b'"version":8,"version":7'),
                data.replace(b'{"document"', b'{"document":{},"document"'),
                data.replace(b'"version"', b'"\\u0076ersion"'),
                json.dumps(content, sort_keys=True, indent=pick(rng, (None, 0, 2))).encode() + b"\n",
                reordered,
                data.rstrip(),
                b"\xef\xbb\xbf" + data,
                data.decode().encode(pick(rng, ("utf-16", "utf-32", "utf-16-le"))),
                data.replace(b'"steps"', b'"' + pick(rng, (b"\xff", b"\xed\xa0\x80", b"\xc0\xaf")) + b'"'),
                pick(rng, (b"null", b"[]", b"{}", b"7", b'"x"', b"true", b"")),
            ),
        )
    }


def hostile_header(rng: np.random.Generator, scene: Scene) -> Files:
    """A state that no reader should take, in a checkpoint whose every sum is right."""
    state = scene.files[STATE_FILE]
    length = int.from_bytes(state[:8], "little")
    header, data = json.loads(state[8 : 8 + length]), state[8 + length :]
    name = str(rng.choice([name for name, entry in header.items() if np.diff(entry["data_offsets"]) > 0]))
    entry = header[name]
    start, end = entry["data_offsets"]
    huge = int(pick(rng, HUGE))
    depth = int(10 ** rng.uniform(2.2, 5))
    wrong_entry: dict[str, Any] = pick(
        rng,
        (
            {"data_offsets": [start + 1, end]},
            {"data_offsets": [start, end + pick(rng, (-1, 1, 8))]},
            {"data_offsets": [end, start - 1]},
            {"data_offsets": [-8, end]},
            {"data_offsets": [start, huge]},
            {"data_offsets": [huge, huge]},
            {"data_offsets": pick(rng, ([], [start], [start, end, end], None, "0", [0.5, end], [None, end]))},
            {"shape": [*entry["shape"], pick(rng, (2, 3, huge))]},
            {"shape": [huge, huge]},
            {"shape": [huge, 0]},
            {"shape": pick(rng, ([-1], [-1, -1], None, 3, "3", [0.5], [[1]], [None]))},
            {"shape": [2] * depth},
            {"dtype": pick(rng, ("F128", "object", "", None, 7, "O", "|O", "f32", "BF16", "F8_E4M3"))},
        ),
    )
    renamed = {"twice": entry, **header}
    listed = list(header.items())
    forged = pick(
        rng,
        (
            json.dumps(header | {name: entry | wrong_entry}).encode(),
            json.dumps(renamed).encode(),
            json.dumps({key: header[key] for key in header if key != name}).encode(),
            json.dumps(header | {name: {key: entry[key] for key in list(entry)[1:]}}).encode(),
            json.dumps(header | {"__metadata__": pick(rng, ({"a": 1}, [], 7, {"a": {"b": "c"}}))}).encode(),
            json.dumps(listed).encode(),
            b'{"a":' * depth + b"1" + b"}" * depth,
            b"[" * depth,
            b"{" + b'"\xff":' + json.dumps(entry).encode() + b"}",
            pick(rng, (b"", b" ", b"null", b"{", b"}", b"0")),
        ),
    )
    lie = pick(rng, (len(state) - 7, 100_000_001, *HUGE))
    return honest(
        pick(
            rng,
            (
                len(forged).to_bytes(8, "little") + forged + data,
                int(lie).to_bytes(8, "little") + state[8:],
                int(rng.integers(length)).to_bytes(8, "little") + state[8:],
                state + rng.bytes(int(rng.integers(1, 100))),
                state[: rng.integers(len(state))],
            ),
        ),
        document_of(scene.files),
    )


def unknown_to_numpy(rng: np.random.Generator, scene: Scene) -> Files:
    """A good safetensors file of things that NumPy has not, in a checkpoint whose every sum is right."""
    entry = pick(
        rng,
        (
            {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]},
            {"dtype": pick(rng, ("F8_E4M3", "F8_E5M2")), "shape": [6], "data_offsets": [0, 6]},
            {"dtype": "U8", "shape": [6] + [1] * 64, "data_offsets": [0, 6]},
            {"dtype": "U8", "shape": [0, 2**62, 2**62], "data_offsets": [0, 0]},
            {"dtype": "U8", "shape": [2**63, 0], "data_offsets": [0, 0]},
        ),
    )
    header = json.dumps({rng.bytes(4).hex(): entry}).encode()
    state = len(header).to_bytes(8, "little") + header + rng.bytes(entry["data_offsets"][1])
    return honest(state, document_of(scene.files))


DAMAGES: tuple[Damage, ...] = (
    cut,
    flipped_bits,
    inserted_bytes,
    removed_bytes,
    replaced_by_noise,
    missing_file,
    swapped_files,
    pickles,
    lying_manifest,
    hostile_manifest,
    hostile_header,
    unknown_to_numpy,
)


def forged_header_noise(rng: np.random.Generator, scene: Scene) -> Files:
    """Random changes to the state's header under right sums: not always damage, but never a reason to crash."""
    state = bytearray(scene.files[STATE_FILE])
    length = int.from_bytes(state[:8], "little")
    for _ in range(int(rng.integers(1, 6))):
        place = int(rng.integers(8 + length))
        state[place] = pick(rng, (state[place] ^ 1 << int(rng.integers(8)), *b'0123456789-[]{},:" '))
    return honest(bytes(state), document_of(scene.files))
