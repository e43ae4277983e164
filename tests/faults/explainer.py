"""A process that has torch and the model loaded and explains in forks of itself, which may be killed at any moment.

It reads one order a line as JSON on standard input and answers with a line that says how the fork ended. Forking spares
every start the seconds that loading takes; what is killed is a process like any other.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import torch

import xai
from xai.planted.truth import planted_memes


def main() -> None:
    torch.set_num_threads(1)  # a fork has none of its parent's threads
    model = xai.load_model("planted", device="cpu")
    xai.explain(model, planted_memes(1, 0)[0])  # torch prepares its kernels once
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os._exit(_explain(model, order))
        if order["kill_after"] is not None:
            time.sleep(order["kill_after"])
            os.kill(pid, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _explain(model: xai.VisionLanguageModel, order: dict[str, Any]) -> int:
    """0 when the run is finished, 2 when it could not be; its error is in ``OUT.error`` then."""
    out = Path(order["out"])
    if order["die_at"] is not None:
        _die_at(order["die_at"], out)
    try:
        xai.explain_dataset(model, order["dataset"], out, **order["options"])
    except ValueError as error:
        out.with_name(f"{out.name}.error").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
        return 2
    return 0


def _die_at(place: int, out: Path) -> None:
    """Kill this process at that one of its writes, fsyncs and renames, a write when half of it is done.

    How many there were stands in ``OUT.calls`` if it comes to its end.
    """
    numbers, calls = count(), out.with_name(f"{out.name}.calls")
    write, fsync, replace = Path.write_bytes, os.fsync, os.replace

    def is_last() -> bool:
        number = next(numbers)
        write(calls, str(number + 1).encode())
        return number == place

    def write_or_die(path: Path, content: Any) -> int:
        if is_last():
            write(path, bytes(content)[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return write(path, content)

    def fsync_or_die(descriptor: int) -> None:
        if is_last():
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(descriptor)

    def replace_or_die(source: Path, target: Path) -> None:
        if is_last():
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)

    Path.write_bytes = write_or_die  # type: ignore[method-assign,assignment]
    os.fsync, os.replace = fsync_or_die, replace_or_die  # type: ignore[assignment]


if __name__ == "__main__":
    main()
