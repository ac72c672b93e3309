"""Pictures into a file: MP4 or GIF, there as a whole or not at all."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.errors import ConfigError
from htsrl.metrics.atomic_file import whole_file

FORMATS = ("mp4", "gif")
PACKAGES = {"mp4": ("imageio", "imageio_ffmpeg"), "gif": ("PIL",)}
Picture = NDArray[np.uint8]
MAX_GIF_FPS = 50.0
"""Viewers slow down what is faster."""


def check_can_write(path: Path) -> None:
    """ConfigError where the format is none of ours, or needs what is not installed."""
    kind = path.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise ConfigError(f"a video cannot be written to {path}: it must end in .mp4 or .gif")
    for package in PACKAGES[kind]:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise ConfigError(f"videos need {package}: {error}; pip install 'htsrl[video]'") from error


def write_video(path: Path, pictures: Iterable[Picture], fps: float) -> int:
    """Returns how many pictures it has."""
    check_can_write(path)
    count = 0

    def counted() -> Iterator[Picture]:
        nonlocal count
        for picture in pictures:
            yield picture
            count += 1

    write = _write_gif if path.suffix.lower() == ".gif" else _write_mp4
    with whole_file(path) as temporary:
        write(temporary, counted(), fps)
    return count


def _write_mp4(path: Path, pictures: Iterable[Picture], fps: float) -> None:
    import imageio.v2 as imageio

    settings: dict[str, Any] = {"codec": "libx264", "quality": 7, "macro_block_size": 2, "ffmpeg_log_level": "error"}
    writer: Any = imageio.get_writer(path, format="FFMPEG", mode="I", fps=fps, **settings)
    try:
        for picture in pictures:
            writer.append_data(picture)
    finally:
        writer.close()


def _write_gif(path: Path, pictures: Iterable[Picture], fps: float) -> None:
    """Every picture has colours of its own; only what changes is written."""
    from PIL import Image

    images = (Image.fromarray(picture).quantize(64, dither=Image.Dither.NONE) for picture in pictures)
    first = next(images)
    milliseconds = round(1000 / min(fps, MAX_GIF_FPS))
    first.save(path, "GIF", save_all=True, append_images=images, duration=milliseconds, loop=0, optimize=False)
