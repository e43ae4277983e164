"""`xai verify`: whether run folders hold what was written to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xai.cli.common import JsonOption, app
from xai.display import out, print_frame, print_json

UNSOUND = 1
_SHOWN = 20


@app.command()
def verify(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders made by `xai explain`.")],
    as_json: JsonOption = False,
) -> None:
    """Check runs: checksums, rows, duplicates, leftovers, state, versions. Exit 0 if all are sound, 1 if one is not."""
    import pandas as pd

    from xai.verify import check_run, compare_versions

    checks = [check_run(path) for path in runs]
    between = compare_versions(checks)
    is_sound = all(check.is_sound for check in checks)
    if as_json:
        compared = [vars(finding) for finding in between]
        print_json({"sound": is_sound, "runs": [check.report() for check in checks], "between": compared})
    else:
        for check in checks:
            rows = ", ".join(f"{n:,} {kind}" for kind, n in check.rows.items())
            verdict = "sound" if check.is_sound else "NOT SOUND"
            sealed = f"{check.n_sealed:,} of {check.n_parts:,} parts with checksums"
            line = f"{check.run}: {verdict}, {check.state}; {rows}; {sealed}, {check.n_bytes / 1e6:,.1f} MB"
            out.print(line, markup=False, highlight=False, soft_wrap=True)
        found = [(check.run, one) for check in checks for one in check.findings] + [("", one) for one in between]
        if found:
            table = [{"run": run, "level": one.level, "where": one.where} for run, one in found]
            told = [{"what": one.what, "do": one.remedy} for _, one in found]
            frame = pd.DataFrame([{**left, **right} for left, right in zip(table, told, strict=True)])
            print_frame(f"Findings ({len(frame)})", frame.head(_SHOWN))
        if len(found) > _SHOWN:
            out.print(f"{len(found) - _SHOWN} more; --json has all of them", highlight=False)
    if not is_sound:
        raise typer.Exit(UNSOUND)
