"""The command line: explain, look, score, analyse.

Exit codes: 0 done, 1 done with failed records (they are listed in the run), 2 nothing could be done.
"""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module
from typing import TextIO

from xai.cli.common import NOTHING_DONE, app
from xai.display import err

__all__ = ["app", "main"]

COMMANDS = (
    *("explain", "show", "explorer", "verify", "score", "analyze", "faithfulness"),
    *("agreement", "annotate", "categories", "ocr", "templates", "planted", "bench_methods", "about"),
)
"""The modules whose import adds their commands, in the order in which `xai --help` lists them."""

for _name in COMMANDS:
    import_module(f"xai.cli.{_name}")


def main() -> None:
    """Entry point of the `xai` command."""
    _hush_libraries(on_terminal=sys.stderr.isatty())
    warnings.showwarning = _show_warning
    try:
        app()
    except Exception as error:
        if not (reason := _reason(error)):
            raise
        err.print(f"xai: {reason}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(NOTHING_DONE)


def _hush_libraries(*, on_terminal: bool) -> None:
    """Let libraries draw progress bars on a terminal only, and there only for what takes more than five seconds.

    Both variables are read when the libraries are imported, which is later; those that a user has set stay.
    """
    os.environ.setdefault("TQDM_DELAY", "5")
    if not on_terminal:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def _reason(error: Exception) -> str:
    """What an error tells a user; empty for one that is a fault of ours."""
    if type(error).__module__.partition(".")[0] in ("duckdb", "_duckdb", "pyarrow"):
        return f"{str(error).splitlines()[0]}; a file may be damaged: xai verify names those of a run"
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    if type(error).__name__ == "AcceleratorError":
        return f"the device failed ({str(error).splitlines()[0]}); the same command goes on where it was"
    is_ours = type(error).__module__.startswith("xai.")
    return str(error) if is_ours or isinstance(error, (ValueError, KeyError, OSError)) else ""


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Our own in one line, like errors; those of libraries as Python shows them."""
    if category.__module__.startswith("xai."):
        err.print(f"xai: {message}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), file=file or sys.stderr, end="")
