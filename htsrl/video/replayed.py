"""The film of a stretch that was replayed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from htsrl.envs.rendering import DEFAULT_FPS
from htsrl.replay.stretch import Replay
from htsrl.video.drawing import pictures
from htsrl.video.scene import PackedFrame, Scene, Shot, means_in_env
from htsrl.video.writer import write_video


def film_replay(replay: Replay, path: Path, watch: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Write it; returns how many frames it has: one for every step."""
    scene = scene_of(replay)

    def told() -> Any:
        for done, picture in enumerate(pictures(scene), start=1):
            yield picture
            watch(done, len(scene.shots))

    return write_video(path, told(), scene.fps)


def scene_of(replay: Replay) -> Scene:
    """The return begins anew with every episode, and at 0 where the stretch begins."""
    arrays, shots, score = replay.arrays, [], 0.0
    layout = replay.interface.actions

    def first(of_row: Any) -> Any:
        """Of a team, the first agent's."""
        return of_row[0] if replay.is_team else of_row

    for row in range(replay.num_steps):
        outputs = first(arrays["logits"][row])
        ended = {kind: bool(np.any(arrays[kind][row])) for kind in ("terminated", "truncated")}
        shots.append(
            Shot(
                int(arrays["step"][row]),
                score,
                {name: np.asarray(first(arrays[name][row])) for name in replay.interface.observations},
                PackedFrame.of(replay.frames[row]) if replay.frames else None,
                float(first(arrays["values"][row])),
                first(arrays["probabilities"][row]),
                means_in_env(layout, outputs),
                np.asarray(first(arrays["actions"][row])),
                note=next((kind for kind, is_so in ended.items() if is_so), ""),
            )
        )
        score = 0.0 if any(ended.values()) else score + float(np.mean(arrays["rewards"][row]))
    updates = sorted(set(arrays["update"].tolist()))
    span = f"update {updates[0]}" if len(updates) == 1 else f"updates {updates[0]} to {updates[-1]}"
    mark = "verified" if replay.is_verified else "NOT verified"
    return Scene(
        replay.run_dir.name,
        f"{span}, environment {replay.env}, {mark}",
        replay.interface,
        replay.fps or DEFAULT_FPS,
        shots,
    )
