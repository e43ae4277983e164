"""The command line: explain, look, score, analyse.

Exit codes: 0 done, 1 done with failed records (they are listed in the run), 2 nothing could be done.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from typing import TextIO

from xai.cli.common import NOTHING_DONE, app
from xai.display import err

__all__ = ["app", "main"]

COMMANDS = (
    *("explain", "show", "explorer", "verify", "score", "analyze", "faithfulness"),
    *("agreement", "categories", "ocr", "planted", "bench_methods", "about"),
)
"""The modules whose import adds their commands, in the order in which `xai --help` lists them."""

for _name in COMMANDS:
    import_module(f"xai.cli.{_name}")


def main() -> None:
    """Entry point of the `xai` command."""
    warnings.showwarning = _show_warning
    try:
        app()
    except Exception as error:
        if not (reason := _reason(error)):
            raise
        err.print(f"xai: {reason}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(NOTHING_DONE)


def _reason(error: Exception) -> str:
    """What an error tells a user; empty for one that is a fault of ours."""
    if type(error).__module__.partition(".")[0] in ("duckdb", "_duckdb", "pyarrow"):
        return f"{str(error).splitlines()[0]}; a file may be damaged: xai verify names those of a run"
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    return str(error) if isinstance(error, (ValueError, KeyError, OSError)) else ""


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
