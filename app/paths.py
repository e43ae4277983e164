"""Which files the explorer may open: pictures inside the folders that its runs name, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PureWindowsPath
from typing import BinaryIO

from PIL import Image, ImageOps

from xai.app.settings import MAX_PIXELS

MOST = 0.9
"""The folder of a run's pictures is the deepest one that holds at least this share of them."""
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")
"""What is decoded; what else lies in a folder of pictures stays unread."""


class PictureError(ValueError):
    """A picture that is not shown; the message says why and neither where it is nor what it holds."""


def picture_folder(recorded: Sequence[str]) -> Path | None:
    """The deepest folder with at least :data:`MOST` of a run's pictures, or ``None`` where there is no such folder.

    A few records that point elsewhere therefore open no other folder. The root of the file system, what lies directly
    in it and the home folder are no folders of pictures.
    """
    paths = [Path(name) for name in recorded if Path(name).is_absolute() and ".." not in Path(name).parts]
    counts = Counter(folder for path in paths for folder in path.parents)
    kept = [folder for folder, n in counts.items() if n >= MOST * len(recorded) and _is_narrow(folder)]
    return max(kept, key=lambda folder: len(folder.parts), default=None)


def resolved_picture(recorded: str | None, roots: Iterable[Path], *, moved: bool = False) -> Path:
    """The file of a picture, links followed, which lies in one of the folders.

    Args:
        moved: the data set may lie elsewhere than when the run was made; a path that is not there is then looked for
            under its endings, ``/a/b/c.png`` as ``a/b/c.png``, ``b/c.png`` and ``c.png`` of each folder.

    Raises:
        PictureError: there is no such picture, or it lies elsewhere.
    """
    if not recorded:
        raise PictureError("this meme has no picture")
    if recorded.startswith(("\\\\", "//")) or (PureWindowsPath(recorded).drive and not Path(recorded).is_absolute()):
        raise PictureError("the picture lies outside the folders of the runs and is not shown")
    tops = [root.resolve() for root in roots]
    try:
        candidates = [path.resolve() for path in _candidates(Path(recorded), tops, moved)]
        inside = [path for path in candidates if any(path.is_relative_to(top) for top in tops)]
        found = next((path for path in inside if path.is_file()), None)
    except (OSError, RuntimeError, ValueError):
        raise PictureError("the record names no file that could be opened") from None
    if found is not None:
        return found
    if inside:
        raise PictureError("the picture is not there any more; start with --images FOLDER if it has moved")
    raise PictureError("the picture lies outside the folders of the runs and is not shown")


def open_picture(path: Path | BinaryIO, *, max_pixels: int = MAX_PIXELS, longest: int | None = None) -> Image.Image:
    """A picture as RGB, upright, at most ``longest`` pixels wide and high.

    Raises:
        PictureError: it cannot be decoded or has too many pixels.
    """
    try:
        with Image.open(path, formats=FORMATS) as picture:
            if picture.width * picture.height > max_pixels:
                limit = f"{max_pixels / 1e6:.0f} million"
                raise PictureError(f"the picture has more than {limit} pixels and is not opened")
            if longest is not None:
                picture.draft("RGB", (longest, longest))  # lets JPEG decode at a fraction of its size
            upright = ImageOps.exif_transpose(picture).convert("RGB")
    except PictureError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        raise PictureError("the picture cannot be decoded") from None
    if longest is not None:
        upright.thumbnail((longest, longest), Image.Resampling.LANCZOS)
    return upright


def _candidates(recorded: Path, tops: Sequence[Path], moved: bool) -> list[Path]:
    if not recorded.is_absolute():
        return [top / recorded for top in tops]
    endings = [Path(*recorded.parts[start:]) for start in range(1, len(recorded.parts))] if moved else []
    return [recorded, *(top / ending for top in tops for ending in endings)]


def _is_narrow(folder: Path) -> bool:
    return len(folder.parts) > 2 and folder != Path.home()
