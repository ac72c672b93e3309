"""A scene as pictures: the environment's frame, or a drawing in its place, and the panel beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from htsrl.video.canvas import FRAME_BACKGROUND, blank
from htsrl.video.curves import Curves
from htsrl.video.panel import MIN_HEIGHT, Panel
from htsrl.video.panel import WIDTH as PANEL_WIDTH
from htsrl.video.scene import Scene

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_WIDTH, MAX_HEIGHT = 640, 480
MIN_WIDTH = 160
Picture = NDArray[np.uint8]


def pictures(scene: Scene) -> Iterator[Picture]:
    """One for every shot, all of the same even size, as video codecs want it."""
    frame = next((shot.frame for shot in scene.shots if shot.frame is not None), None)
    curves = Curves(scene) if frame is None else None
    size = curves_size() if frame is None else frame_size(*frame.shape[:2])
    width, height = max(size[0], MIN_WIDTH), max(size[1], MIN_HEIGHT)
    width, height = width + width % 2, height + height % 2
    panel = Panel(scene, height)
    for index, shot in enumerate(scene.shots):
        image = blank(width + PANEL_WIDTH, height, FRAME_BACKGROUND)
        shown = curves.draw(index) if curves is not None else None
        if shown is None and shot.frame is not None:
            shown = _scaled(shot.frame.unpacked(), size)
        if shown is not None:
            image.paste(shown, ((width - shown.width) // 2, (height - shown.height) // 2))
        image.paste(panel.draw(index), (width, 0))
        yield np.asarray(image)


def curves_size() -> tuple[int, int]:
    from htsrl.video.curves import HEIGHT, WIDTH

    return WIDTH, HEIGHT


def frame_size(height: int, width: int) -> tuple[int, int]:
    """Width and height to show a frame at: small ones a whole number of times as large, large ones smaller."""
    scale = min(MAX_WIDTH / width, MAX_HEIGHT / height)
    scale = float(int(scale)) if scale >= 1 else scale
    return max(1, round(width * scale)), max(1, round(height * scale))


def _scaled(frame: NDArray[Any], size: tuple[int, int]) -> Image:
    from PIL import Image as Images

    image = Images.fromarray(frame)
    if image.size == size:
        return image
    grows = size[0] >= image.width
    return image.resize(size, Images.Resampling.NEAREST if grows else Images.Resampling.LANCZOS)
