"""Looks up known vulnerabilities of what a lock file pins; what could not be looked up is never taken for clean.

Run as ``make audit``. Exit codes: 0 nothing known, 1 vulnerabilities (listed), 2 the database cannot be reached.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CLEAN, VULNERABLE, NOT_DONE = 0, 1, 2
KNOWN = "packaging==26.0\n"
"""A package that the database has, asked for first: where even it is unknown, nothing can be learnt."""
_REMEDY = "run it where PyPI's own index can be reached"


def main(lock: Path) -> int:
    """Audit the lock file, print what was found, and return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        known = Path(folder) / "known.txt"
        known.write_text(KNOWN, encoding="utf-8")
        code, text = verdict(_asked(known, "--no-deps"))
    if code != NOT_DONE:
        code, text = verdict(_asked(lock, "--require-hashes"))
    print(text)
    return code


def verdict(answer: Mapping[str, Any] | None) -> tuple[int, str]:
    """The exit code and what to print, by the JSON that pip-audit writes; ``None`` if it wrote none.

    pip-audit itself says "no known vulnerabilities" where it could look up nothing.
    """
    if answer is None:
        return NOT_DONE, f"audit: NOT DONE, the database of vulnerabilities cannot be reached; {_REMEDY}"
    audited = [one for one in answer["dependencies"] if "skip_reason" not in one]
    skipped = [one for one in answer["dependencies"] if "skip_reason" in one]
    found = [
        f"{one['name']} {one['version']}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'no version yet'}"
        for one in audited
        for hole in one["vulns"]
    ]
    if found:
        return VULNERABLE, "\n".join([*found, f"audit: {len(found)} known vulnerabilities"])
    if skipped or not audited:
        names = ", ".join(one["name"] for one in skipped[:5])
        return NOT_DONE, f"audit: NOT DONE, the database tells nothing of {len(skipped)} packages ({names}); {_REMEDY}"
    return CLEAN, f"audit: nothing known of {len(audited)} packages"


def _asked(requirements: Path, mode: str) -> dict[str, Any] | None:
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", mode, "--requirement", requirements]
    options = ["--format", "json", "--progress-spinner", "off"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        print(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "pip-audit wrote nothing")
        return None
    return answer


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
