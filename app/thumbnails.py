"""Makes small and blurred pictures once and keeps them on disk, outside the run."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import tempfile
from pathlib import Path

from PIL import Image, ImageFilter

from xai.app.paths import open_picture

THUMBNAIL, VIEW = 320, 1000
"""Longest side in pixels, in lists and on the page of a meme."""
_BLUR = 28
_VERSION = 2


class Thumbnails:
    """Pictures of given sizes, as WebP.

    Args:
        folder: where they are kept; what cannot be written there is made again each time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "thumbnails"

    def get(self, path: Path, *, longest: int = THUMBNAIL, blurred: bool = False) -> bytes:
        """A picture as WebP, at most ``longest`` pixels wide and high.

        A picture that has changed since it was kept is made again.

        Raises:
            PictureError: the picture cannot be decoded or has too many pixels.
        """
        status = path.stat()
        identity = (str(path), status.st_mtime_ns, status.st_size, longest, blurred, _VERSION)
        name = hashlib.sha256(repr(identity).encode()).hexdigest()
        kept = self._folder / name[:2] / f"{name}.webp"
        try:
            return kept.read_bytes()
        except OSError:
            picture = open_picture(path, longest=longest)
        made = webp(_blurred(picture) if blurred else picture)
        _keep(kept, made)
        return made


def data_uri(content: bytes) -> str:
    """A WebP picture as the source of an HTML element."""
    return "data:image/webp;base64," + base64.b64encode(content).decode("ascii")


def webp(picture: Image.Image) -> bytes:
    """A picture as WebP."""
    buffer = io.BytesIO()
    picture.save(buffer, format="WEBP", quality=85)
    return buffer.getvalue()


def _blurred(picture: Image.Image) -> Image.Image:
    # Here and not by the page, so that what was not asked for does not reach the browser.
    small = picture.resize((max(1, picture.width // 4), max(1, picture.height // 4)))
    blur = ImageFilter.GaussianBlur(_BLUR * max(small.size) / THUMBNAIL)
    return small.filter(blur).resize(picture.size)


def _keep(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
    except OSError:
        return
