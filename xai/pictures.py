"""Decodes a picture from a file or from memory to upright RGB, and refuses what cannot be shown rightly."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
"""What is decoded, whatever the file's name ends in; Pillow knows others, some of which start further programs."""
MAX_PIXELS = 64_000_000
"""Pixels of the largest picture that is decoded unless another limit is given: 8000 x 8000, 192 MB as RGB."""
BACKGROUND = "white"
"""What stands behind transparent pixels, as on a white page."""
_SIXTEEN_BITS = 257
"""65535 / 255: the step of 16-bit grey that is one step of 8-bit grey."""

_PUT = "put the picture's file there"
_SMALLER = "scale it down or raise max_pixels"


class PictureError(ValueError):
    """A picture that cannot be used; the message says why and what to do, and names no folder."""


@dataclass(frozen=True)
class Picture:
    """A picture as a model is shown it.

    Attributes:
        image: RGB, turned upright by its EXIF orientation.
        n_frames: pictures in the file, frames or pages, of which ``image`` is the first.
    """

    image: Image.Image
    n_frames: int = 1


def read_picture(source: Path | Image.Image, *, max_pixels: int = MAX_PIXELS) -> Picture:
    """The first picture of a file, or one in memory, as upright RGB.

    Transparent pixels are laid on :data:`BACKGROUND`, 16-bit grey is scaled to 8 bits, and colour profiles are not
    applied. The number of pixels is read from the file's head, so that too large a picture is never decoded.

    Raises:
        PictureError: there is no such file, it is no picture of a format in :data:`FORMATS`, it is damaged, it has
            more than ``max_pixels`` pixels, or its values have no known range.
    """
    try:
        if isinstance(source, Image.Image):
            return _decoded(source, max_pixels)
        if not source.is_file():  # a pipe would be waited for without end
            is_there = source.exists()
            raise PictureError(f"is no file; {_PUT}" if is_there else "does not exist; check its name")
        with Image.open(source, formats=FORMATS) as picture:
            return _decoded(picture, max_pixels)
    except PictureError:
        raise
    except UnidentifiedImageError:
        raise PictureError(f"cannot be decoded: {_unidentified(source)}; replace the file") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise PictureError(f"has more than {max_pixels:,} pixels; {_SMALLER}") from None
    except Exception as error:  # decoders raise whatever a damaged file leads them to
        raise PictureError(f"cannot be decoded: {_cause(error)}; replace the file") from None


def size_of_file(source: Path) -> tuple[int, int] | None:
    """Width and height that the head of a picture's file names, unturned; ``None`` where that cannot be read."""
    with warnings.catch_warnings(action="ignore", category=Image.DecompressionBombWarning):
        try:
            if source.is_file():
                with Image.open(source, formats=FORMATS) as picture:
                    return picture.size
        except Exception:
            pass
    return None


def _decoded(picture: Image.Image, max_pixels: int) -> Picture:
    width, height = picture.size
    if width * height > max_pixels:
        raise PictureError(f"is {width} × {height}, more than {max_pixels:,} pixels; {_SMALLER}")
    # In this order: counting frames moves within the file.
    image = as_rgb(ImageOps.exif_transpose(picture))
    return Picture(image, getattr(picture, "n_frames", 1))


def as_rgb(picture: Image.Image) -> Image.Image:
    """A picture of any mode as RGB.

    Raises:
        PictureError: its values are 32-bit numbers, of which nothing says which is white.
    """
    if picture.mode in ("I", "F"):
        raise PictureError("holds 32-bit values without a range; save it with 8 or 16 bits a channel")
    if picture.mode.startswith("I;16"):
        picture = _eight_bits(picture)
    if picture.mode == "La":
        picture = picture.convert("LA")
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    layer = picture.convert("RGBA")
    page = Image.new("RGBA", layer.size, BACKGROUND)
    return Image.alpha_composite(page, layer).convert("RGB")


def _eight_bits(picture: Image.Image) -> Image.Image:
    """16-bit grey as 8-bit grey, with transparency where one grey is marked as transparent."""
    values = np.asarray(picture).astype(np.uint32)
    grey = Image.fromarray(((values + _SIXTEEN_BITS // 2) // _SIXTEEN_BITS).astype(np.uint8))
    key = picture.info.get("transparency")
    if isinstance(key, int):
        grey.putalpha(Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8)))
    return grey


def _unidentified(source: Path | Image.Image) -> str:
    if isinstance(source, Path) and not source.stat().st_size:
        return "the file is empty"
    return f"it is none of {', '.join(FORMATS)}, or damaged"


def _cause(error: Exception) -> str:
    """What went wrong, without the path that the system puts into its messages."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
