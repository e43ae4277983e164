"""Pictures that break things, each drawn from one planted meme, with what is to become of it."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from .cases import Case

Draw = Callable[[Path, Image.Image], object]
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""What turns an upright picture into the one that an EXIF orientation turns upright again (EXIF 2.32, tag 0x0112)."""


def turned(orientation: int) -> Draw:
    def draw(path: Path, picture: Image.Image) -> None:
        exif = Image.Exif()
        exif[0x0112] = orientation
        picture.transpose(TURNS[orientation]).save(path, exif=exif)

    return draw


def saved(**options: object) -> Draw:
    return lambda path, picture: picture.save(path, **options)


def converted(mode: str, **options: object) -> Draw:
    return lambda path, picture: picture.convert(mode).save(path, **options)


def few_colours(picture: Image.Image) -> Image.Image:
    return picture.quantize(64, dither=Image.Dither.NONE)


def animated(path: Path, picture: Image.Image, **options: object) -> None:
    first = few_colours(picture)
    rest = [first.transpose(Image.Transpose.ROTATE_180), Image.new("P", picture.size)]
    first.save(path, save_all=True, append_images=rest, **options)


def sixteen_bits(path: Path, picture: Image.Image) -> None:
    grey = np.asarray(picture.convert("L")).astype(np.uint16)
    Image.fromarray(grey * 257).save(path)


def on_glass(path: Path, picture: Image.Image) -> None:
    """Transparent where the picture is white, with black behind, as cut-outs are saved."""
    pixels = np.asarray(picture)
    is_white = (pixels == 255).all(axis=-1)
    seen = np.where(is_white[..., None], 0, pixels).astype(np.uint8)
    Image.fromarray(np.dstack([seen, np.where(is_white, 0, 255).astype(np.uint8)])).save(path)


def cut(share: float, **options: object) -> Draw:
    def draw(path: Path, picture: Image.Image) -> None:
        picture.save(path, **options)
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])

    return draw


def plain(width: int, height: int, mode: str = "RGB") -> Draw:
    return lambda path, _: Image.new(mode, (width, height)).save(path)


def bomb(path: Path, _: object) -> None:
    """A PNG of a few hundred bytes that says it has 50,000 x 50,000 pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    content = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(50_000))) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + content)


def link_inside(path: Path, picture: Image.Image) -> None:
    picture.save(path.with_name("behind-the-link.png"))
    path.symlink_to("behind-the-link.png")


def link_outside(path: Path, picture: Image.Image) -> None:
    secret = path.parents[1] / "secret.png"
    picture.save(secret)
    path.symlink_to(secret)


def wrong_name(path: Path, picture: Image.Image) -> None:
    picture.save(path, format="JPEG", quality=95)


FIRST_OF_3 = "explained; the first of its 3 pictures is shown, which is flagged"
UNSIZED = "holds 32-bit values without a range; save it with 8 or 16 bits a channel"
PICTURES = [
    Case("plain.png", "an upright 8-bit RGB PNG", saved()),
    Case("cut.png", "a PNG cut in the middle", cut(0.5), reason="cannot be decoded: image file is truncated"),
    Case("cut.jpg", "a JPEG without its last tenth", cut(0.9), reason="cannot be decoded: image file is truncated"),
    Case("cut.gif", "a GIF cut in the middle", cut(0.5), reason="cannot be decoded: image file is truncated"),
    Case("cut.webp", "a WebP cut in the middle", cut(0.5), reason="cannot be decoded: "),
    Case("cut.tif", "a TIFF cut in the middle", cut(0.5), reason="cannot be decoded: "),
    Case(
        "empty.png",
        "no bytes",
        lambda path, _: path.touch(),
        reason="cannot be decoded: the file is empty; replace the file",
    ),
    Case(
        "prose.png",
        "text by the name of a picture",
        lambda path, _: path.write_text("no"),
        reason="it is none of AVIF, BMP, GIF, JPEG, PNG, TIFF, WEBP, or damaged; replace the file",
    ),
    Case(
        "page.png",
        "an EPS by the name of a PNG, which would start another program",
        saved(format="EPS"),
        reason="it is none of AVIF, BMP, GIF, JPEG, PNG, TIFF, WEBP, or damaged; replace the file",
    ),
    Case("jpeg.png", "a JPEG by the name of a PNG", wrong_name),
    Case("still.gif", "GIF", lambda path, picture: few_colours(picture).save(path), same_as="palette.png"),
    Case("lossless.webp", "WebP", saved(lossless=True), same_as="plain.png"),
    Case("plain.bmp", "BMP", saved(), same_as="plain.png"),
    Case("plain.tif", "TIFF, compressed", saved(compression="tiff_lzw"), same_as="plain.png"),
    Case("moving.gif", "an animated GIF", animated, flag=FIRST_OF_3, same_as="palette.png"),
    Case(
        "moving.webp",
        "an animated WebP",
        lambda path, picture: animated(path, picture, lossless=True),
        flag=FIRST_OF_3,
        same_as="palette.png",
    ),
    Case("moving.png", "an animated PNG", animated, flag=FIRST_OF_3, same_as="palette.png"),
    Case("pages.tif", "a TIFF of 3 pages", animated, flag=FIRST_OF_3, same_as="palette.png"),
    Case("palette.png", "a palette of 64 colours", lambda path, picture: few_colours(picture).save(path)),
    Case("grey.png", "8-bit grey", converted("L")),
    Case("grey16.png", "16-bit grey, scaled to 8 bits", sixteen_bits, same_as="grey.png"),
    Case("grey16.tif", "16-bit grey as TIFF", sixteen_bits, same_as="grey.png"),
    Case("real.tif", "32-bit floating point", converted("F"), reason=UNSIZED),
    Case("cmyk.tif", "CMYK", converted("CMYK"), same_as="plain.png"),
    Case("cmyk.jpg", "CMYK as JPEG", converted("CMYK", quality=95)),
    Case("opaque.png", "RGBA, nothing transparent", converted("RGBA"), same_as="plain.png"),
    Case("glass.png", "RGBA, transparent where the picture is white: laid on white", on_glass, same_as="plain.png"),
    *(Case(f"turn{n}.png", f"EXIF orientation {n}: turned upright", turned(n), same_as="plain.png") for n in TURNS),
    Case("dot.png", "1 × 1 pixel", plain(1, 1)),
    Case(
        "line.png",
        "1 × 4000 pixels",
        plain(1, 4000),
        reason="is 1 × 4000: one side is more than 200 times the other; crop it",
    ),
    Case("banner.png", "12000 × 100 pixels", plain(12_000, 100)),
    Case(
        "bomb.png",
        "50000 × 50000 pixels in some hundred bytes, refused before it is decoded",
        bomb,
        reason="has more than 64,000,000 pixels; scale it down or raise max_pixels",
    ),
    Case(
        "large.png",
        "8100 × 8000 pixels",
        plain(8100, 8000, "1"),
        reason="is 8100 × 8000, more than 64,000,000 pixels; scale it down",
    ),
    Case("link.png", "a link to a picture in the folder", link_inside, same_as="plain.png"),
    Case(
        "outside.png",
        "a link out of the folder",
        link_outside,
        whole=True,
        reason="leads out of the folder of the pictures; put the picture inside",
    ),
    Case(
        "loop.png", "a link to itself", lambda path, _: path.symlink_to(path), reason="does not exist; check its name"
    ),
    Case(
        "folder.png",
        "a folder by the name of a picture",
        lambda path, _: path.mkdir(),
        reason="is no file; put the picture's file there",
    ),
    Case(
        "pipe.png",
        "a pipe, which would be waited for without end",
        lambda path, _: os.mkfifo(path),
        reason="is no file",
    ),
    Case("gone.png", "no such file", lambda path, _: None, reason="does not exist; check its name"),
]
