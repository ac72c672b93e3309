"""A drawing in place of a frame, for environments that render nothing: what is seen and done, curves or a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from htsrl.spaces import ObservationLeaf
from htsrl.spaces.observations import MASK_KEY
from htsrl.video.canvas import (
    ACCENT,
    CHOSEN,
    FAINT,
    FRAME_BACKGROUND,
    GRID,
    TEXT,
    Box,
    blank,
    bounds_of,
    curve,
    draw_on,
    fitted,
    number,
    write,
)
from htsrl.video.scene import Scene, continuous_parts

if TYPE_CHECKING:
    from PIL.Image import Image

WIDTH, HEIGHT = 480, 400
NUM_STEPS = 200
"""How many of the last steps are shown."""
MAX_CURVES = 10
LABEL = 92


class Curves:
    """Draws a shot's picture; curves keep their scale over the whole scene."""

    def __init__(self, scene: Scene) -> None:
        leaves = {name: leaf for name, leaf in scene.interface.observations.items() if name != MASK_KEY}
        self._image = next((name for name, leaf in leaves.items() if leaf.is_image), None)
        self._leaf: ObservationLeaf | None = leaves[self._image] if self._image is not None else None
        self._scene = scene
        seen = [] if self._image is not None else _numbers(scene, leaves)
        acted = _actions(scene)
        room = MAX_CURVES - min(len(acted), 4)
        self._left_out = max(0, len(seen) - room)
        self._curves = [(name, x, ACCENT) for name, x in seen[:room]] + [(name, x, CHOSEN) for name, x in acted[:4]]

    def draw(self, index: int) -> Image:
        image = blank(WIDTH, HEIGHT, FRAME_BACKGROUND)
        top = 10.0
        if self._image is not None:
            top = self._paste_observation(image, index)
        draw = draw_on(image)
        bottom = HEIGHT - (26.0 if self._left_out else 10.0)
        height = (bottom - top) / max(len(self._curves), 1)
        for i, (name, values, colour) in enumerate(self._curves):
            box: Box = (LABEL, top + i * height + 3, WIDTH - 68, top + (i + 1) * height - 3)
            draw.line((box[0], box[3] + 3, box[2], box[3] + 3), fill=GRID)
            middle = (box[1] + box[3]) / 2
            write(draw, (10, middle), fitted(name, 12, LABEL - 16), 12, FAINT, "lm")
            shown = values[max(0, index + 1 - NUM_STEPS) : index + 1]
            part = max(len(shown) - 1, 0) / (min(NUM_STEPS, max(len(values), 2)) - 1)
            inner: Box = (box[0], box[1], box[0] + (box[2] - box[0]) * part, box[3])
            curve(draw, inner, shown.tolist(), bounds_of(values), colour)
            if np.isfinite(values[index]):
                write(draw, (WIDTH - 10, middle), number(float(values[index])), 12, TEXT, "rm")
        if self._left_out:
            write(draw, (10, HEIGHT - 20), f"and {self._left_out} more numbers of the observation", 12, FAINT)
        return image

    def _paste_observation(self, image: Image, index: int) -> float:
        """The newest picture in an observation of pictures; returns where curves may begin."""
        from PIL import Image as Images

        assert self._image is not None
        assert self._leaf is not None
        picture = _picture(self._scene.shots[index].seen[self._image], self._leaf.channels_last)
        room = HEIGHT - 20 - 48 * min(len(self._curves), 2)
        height, width = picture.shape[:2]
        scale = min((WIDTH - 20) / width, room / height)
        scale = max(1.0, float(int(scale))) if scale > 1 else scale
        size = max(1, int(width * scale)), max(1, int(height * scale))
        image.paste(Images.fromarray(picture).resize(size, Images.Resampling.NEAREST), ((WIDTH - size[0]) // 2, 10))
        return size[1] + 20.0


def _picture(seen: NDArray[Any], channels_last: bool) -> NDArray[np.uint8]:
    """Colours where there are three channels, else the last channel, which is the newest of a stack."""
    channels = seen if channels_last else np.moveaxis(seen, 0, -1)
    picture = channels if channels.shape[-1] == 3 else np.repeat(channels[..., -1:], 3, axis=-1)
    return np.ascontiguousarray(picture, np.uint8)


def _numbers(scene: Scene, leaves: dict[str, ObservationLeaf]) -> list[tuple[str, NDArray[Any]]]:
    """Every number of the observations over time, by name."""
    found = []
    for name in leaves:
        values = np.array([shot.seen[name].reshape(-1) for shot in scene.shots], np.float64)
        short = name.removeprefix("obs/")
        found += [(f"{short}[{i}]" if values.shape[1] > 1 else short, values[:, i]) for i in range(values.shape[1])]
    return found


def _actions(scene: Scene) -> list[tuple[str, NDArray[Any]]]:
    layout = scene.interface.actions
    rows = [
        np.full(len(layout.categories) + layout.num_continuous, np.nan)
        if shot.action is None
        else np.concatenate(
            [np.atleast_1d(shot.action)[: len(layout.categories)], continuous_parts(layout, shot.action)]
        )
        for shot in scene.shots
    ]
    values = np.array(rows, np.float64)
    count = values.shape[1]
    return [(f"action[{i}]" if count > 1 else "action", values[:, i]) for i in range(count)]
