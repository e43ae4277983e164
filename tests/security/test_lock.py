"""The lock file pins what pyproject.toml asks for, by hash, and names no index, no host and no path."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..audit import CLEAN, NOT_DONE, VULNERABLE, verdict

PROJECT = Path(__file__).parents[2]
PIN = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>[^ ;+]+)(?: ; (?P<marker>.+))? \\")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?")
NOTE = re.compile(r" *#.*")


def lock() -> list[str]:
    return (PROJECT / "requirements.lock").read_text(encoding="utf-8").splitlines()


def wanted() -> list[Requirement]:
    """Everything that the project and its extra ``dev`` ask for, extras of its own resolved."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    found = list(map(Requirement, project["dependencies"]))
    pending = list(extras["dev"])
    while pending:
        requirement = Requirement(pending.pop())
        if requirement.name == project["name"]:
            pending += [one for extra in requirement.extras for one in extras[extra]]
        else:
            found.append(requirement)
    return found


def test_the_lock_holds_pins_with_hashes_and_nothing_else() -> None:
    lines = lock()
    odd = [line for line in lines if not (PIN.fullmatch(line) or HASH.fullmatch(line) or NOTE.fullmatch(line))]
    assert odd == []
    for line, following in pairwise(lines):
        if PIN.fullmatch(line):
            assert HASH.fullmatch(following), line


def test_the_lock_names_no_index_no_host_and_no_path() -> None:
    assert [line for line in lock() if re.search(r"://|--(index|extra|find|trusted)|(^|\s)/|\.\./", line)] == []


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_what_pyproject_asks_for_is_pinned_within_its_bounds(python: str, system: str) -> None:
    environment = {"python_version": python, "python_full_version": f"{python}.9", "sys_platform": system}
    pins: dict[str, list[str]] = defaultdict(list)
    for found in filter(None, map(PIN.fullmatch, lock())):
        marker = found["marker"]
        if marker is None or Requirement(f"x ; {marker}").marker.evaluate(environment):  # type: ignore[union-attr]
            pins[found["name"]].append(found["version"])
    assert {name: versions for name, versions in pins.items() if len(versions) > 1} == {}
    outside = [
        f"{requirement} but {pins[canonicalize_name(requirement.name)]}"
        for requirement in wanted()
        if not any(map(requirement.specifier.contains, pins[canonicalize_name(requirement.name)]))
    ]
    assert outside == [], "run: make lock"


def package(**about: object) -> dict[str, object]:
    return {"name": "p", "version": "1", "vulns": [], **about}


def test_an_audit_that_looked_nothing_up_is_not_a_clean_one() -> None:
    unknown = {"name": "p", "skip_reason": "Dependency not found on PyPI and could not be audited: p (1)"}
    hole = {"id": "PYSEC-1", "fix_versions": ["1.1"], "aliases": [], "description": ""}
    assert verdict({"dependencies": [package()]}) == (CLEAN, "audit: nothing known of 1 packages")
    assert verdict(None)[0] == verdict({"dependencies": []})[0] == NOT_DONE
    assert verdict({"dependencies": [package(), unknown]})[0] == NOT_DONE
    code, text = verdict({"dependencies": [package(vulns=[hole]), unknown]})
    assert code == VULNERABLE
    assert text.splitlines()[0] == "p 1: PYSEC-1, mended in 1.1"
