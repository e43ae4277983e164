"""Pictures come from the folders of the runs only, whatever a record or a link says; refusals tell nothing."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import pytest
from PIL import Image

from xai.app.paths import PictureError, open_picture, picture_folder, resolved_picture
from xai.app.thumbnails import Thumbnails


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "data" / "images"
    inside.mkdir(parents=True)
    Image.new("RGB", (40, 20), "red").save(inside / "a.png")
    Image.new("RGB", (8, 8), "blue").save(tmp_path / "secret.png")
    (tmp_path / "secret.txt").write_text("do not read")
    return inside


def test_a_picture_inside_is_found(folder: Path) -> None:
    assert resolved_picture(str(folder / "a.png"), [folder]) == (folder / "a.png").resolve()
    assert resolved_picture("a.png", [folder]) == (folder / "a.png").resolve()


OUTSIDE = [
    *(
        "{top}/secret.png",
        "../../secret.png",
        "{folder}/../../secret.png",
        "{folder}/link.png",
        "{folder}/dir/secret.png",
    ),
    *("/etc/passwd", "\\\\server\\share\\a.png", "//server/share/a.png", "C:\\Windows\\win.ini"),
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_leads_outside_is_refused_without_a_word_on_where_to(folder: Path, tmp_path: Path, name: str) -> None:
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "dir").symlink_to(tmp_path)
    for moved in (False, True):
        with pytest.raises(PictureError) as refusal:
            resolved_picture(name.format(top=tmp_path, folder=folder), [folder], moved=moved)
        assert "outside" in str(refusal.value) or "not there" in str(refusal.value)
        assert str(tmp_path) not in str(refusal.value)
        assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("name", [None, "", "a\0.png", "x" * 5000])
def test_names_that_are_no_files_are_refused_in_words(folder: Path, name: str | None) -> None:
    with pytest.raises(PictureError):
        resolved_picture(name, [folder])


def test_a_data_set_that_has_moved_is_found_under_the_folder_that_is_given(folder: Path) -> None:
    assert resolved_picture("/old/place/images/a.png", [folder], moved=True) == (folder / "a.png").resolve()
    with pytest.raises(PictureError, match="outside"):
        resolved_picture("/old/place/images/a.png", [folder])


def test_the_folder_of_the_pictures_is_the_deepest_with_nearly_all_of_them() -> None:
    pictures = [f"/data/set/images/{n % 2}/{n}.png" for n in range(30)]
    assert picture_folder(pictures) == Path("/data/set/images")
    assert picture_folder([*pictures, "/etc/shadow.png", "/data/set/images/../../../x.png"]) == Path("/data/set/images")
    assert picture_folder(["/etc/a.png", "/srv/memes/b.png"]) is None
    assert picture_folder([str(Path.home() / "a.png")]) is None
    assert picture_folder([]) is None


def test_only_pictures_are_decoded(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(PictureError, match="cannot be decoded"):
        open_picture(tmp_path / "secret.txt")
    (folder / "page.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n")
    with pytest.raises(PictureError, match="cannot be decoded"):
        open_picture(folder / "page.eps")


def test_a_picture_that_would_unpack_to_too_much_is_refused_before_it_is_decoded(folder: Path) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    (folder / "bomb.png").write_bytes(bomb)
    with pytest.raises(PictureError):
        open_picture(folder / "bomb.png")


def test_thumbnails_are_made_once_and_anew_when_the_picture_changes(folder: Path, tmp_path: Path) -> None:
    thumbnails = Thumbnails(tmp_path / "cache")
    first = thumbnails.get(folder / "a.png")
    (kept,) = (tmp_path / "cache").rglob("*.webp")
    made = kept.stat().st_mtime_ns
    assert thumbnails.get(folder / "a.png") == first
    assert kept.stat().st_mtime_ns == made
    Image.new("RGB", (400, 800), "green").save(folder / "a.png")
    with Image.open(io.BytesIO(thumbnails.get(folder / "a.png"))) as picture:
        assert picture.size == (160, 320)


def test_a_blurred_thumbnail_does_not_show_what_is_drawn(folder: Path, tmp_path: Path) -> None:
    board = Image.new("L", (64, 64))
    board.putdata([255 * ((x // 4 + y // 4) % 2) for y in range(64) for x in range(64)])
    board.save(folder / "board.png")
    thumbnails = Thumbnails(tmp_path / "cache")

    def contrast(blurred: bool) -> int:
        content = thumbnails.get(folder / "board.png", blurred=blurred)
        low, high = Image.open(io.BytesIO(content)).convert("L").getextrema()
        return int(high) - int(low)

    assert contrast(False) > 150
    assert contrast(True) < 30
