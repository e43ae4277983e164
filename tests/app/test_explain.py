"""Own memes: limits that hold before anything is decoded, and a queue in which visitors do not mix."""

from __future__ import annotations

import io
import threading
import time

import pytest
from PIL import Image

from xai.app.paths import PictureError
from xai.app.settings import UPLOAD_MEGABYTES
from xai.app.views.explain import Queue, checked_upload
from xai.models import VisionLanguageModel
from xai.pipeline import explain
from xai.schema import Meme


def png(size: tuple[int, int]) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", size).save(buffer, format="PNG")
    return buffer.getvalue()


def test_an_upload_within_the_limits_is_a_picture() -> None:
    assert checked_upload(png((30, 20))).size == (30, 20)


def test_too_many_bytes_too_many_pixels_and_what_is_no_picture_are_refused() -> None:
    with pytest.raises(PictureError, match="10 MB"):
        checked_upload(b"\0" * (UPLOAD_MEGABYTES * 2**20 + 1))
    with pytest.raises(PictureError, match="25 million pixels"):
        checked_upload(png((5001, 5001)))
    with pytest.raises(PictureError, match="cannot be decoded"):
        checked_upload(b"GIF89a but not really")


def test_one_visitor_at_a_time_is_served_and_too_many_are_turned_away() -> None:
    queue, inside, most = Queue(max_waiting=2), [], []

    def visit() -> None:
        with queue.turn():
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.2)
            inside.pop()

    visitors = [threading.Thread(target=visit) for _ in range(3)]
    for visitor in visitors:
        visitor.start()
    time.sleep(0.1)
    with pytest.raises(ValueError, match="too many visitors"), queue.turn():
        pass
    for visitor in visitors:
        visitor.join()
    assert most == [1, 1, 1]
    assert queue.present == 0


def test_a_visit_that_fails_does_not_hold_up_the_next() -> None:
    queue = Queue()
    with pytest.raises(RuntimeError), queue.turn():
        raise RuntimeError("the model failed")
    with queue.turn():
        assert queue.present == 1


def test_visitors_at_once_get_what_each_would_get_alone(model: VisionLanguageModel, new_memes: list[Meme]) -> None:
    memes = new_memes[:2]
    alone = [explain(model, meme, mode="text").token_table for meme in memes]
    queue, together = Queue(), {}

    def visit(index: int) -> None:
        with queue.turn():
            together[index] = explain(model, memes[index], mode="text").token_table

    visitors = [threading.Thread(target=visit, args=(index,)) for index in range(2)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    assert [together[index] for index in range(2)] == alone
