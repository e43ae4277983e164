"""Starts `xai app` in a process of its own, as an auditor does."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path


class Explorer:
    """A running `xai app`."""

    def __init__(self, *arguments: str | Path, cache: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [sys.executable, "-m", "xai.cli", "app", *map(str, arguments), "--port", str(self.port)]
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cache
        )
        self.address = f"http://127.0.0.1:{self.port}"
        deadline = time.monotonic() + 120
        while not self._answers():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline, "the explorer does not start"
            time.sleep(0.2)

    def stop(self) -> tuple[int, str]:
        """End it as Ctrl-C does; its exit code and all that it said."""
        self.process.send_signal(signal.SIGINT)
        said, _ = self.process.communicate(timeout=60)
        return self.process.returncode, said

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/_stcore/health", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False
