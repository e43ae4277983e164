"""The command line: explain, look, score, analyse.

Exit codes: 0 done, 1 done with failed records (they are listed in the run), 2 nothing could be done.
"""

from __future__ import annotations

import sys
from importlib import import_module

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
    try:
        app()
    except (ValueError, KeyError, OSError) as error:
        err.print(f"xai: {_reason(error)}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(NOTHING_DONE)


def _reason(error: Exception) -> str:
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
