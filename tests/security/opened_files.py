"""Which files below a folder are opened while something runs, as the kernel (inotify) sees it."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

AVAILABLE = sys.platform.startswith("linux")
_IN_OPEN = 0x20
_EVENT = struct.Struct("iIII")


@contextmanager
def opened_files(folder: Path) -> Iterator[set[str]]:
    """Yields a set that holds, after the block, the names of the files below ``folder`` that were opened within it."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK)
    assert descriptor >= 0, os.strerror(ctypes.get_errno())
    names: set[str] = set()
    try:
        for path in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
            assert libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_OPEN) >= 0
        yield names
        names |= set(_events(descriptor))
    finally:
        os.close(descriptor)


def _events(descriptor: int) -> Iterator[str]:
    try:
        data = os.read(descriptor, 1 << 20)
    except BlockingIOError:
        return
    at = 0
    while at < len(data):
        *_, length = _EVENT.unpack_from(data, at)
        name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
        at += _EVENT.size + length
        if name:
            yield os.fsdecode(name)
