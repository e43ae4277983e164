"""Makes an environment beside this one with transformers at the lower bound of pyproject.toml, the rest shared."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

PROJECT = Path(__file__).parents[1]


def lower_bound(package: str) -> str:
    """The version after ``>=`` in the package's dependencies."""
    requirements = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    bounds = [re.fullmatch(rf"{package}>=([\d.]+)(,.*)?", requirement) for requirement in requirements]
    return next(bound.group(1) for bound in bounds if bound)


def main(folder: Path) -> None:
    """Make the environment; pip adds transformers and what that version needs, and this project."""
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    shared = sysconfig.get_paths()["purelib"]
    (folder / "lib" / version / "site-packages" / "shared.pth").write_text(shared + "\n", encoding="utf-8")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"transformers=={lower_bound('transformers')}"], check=True)
    subprocess.run([*pip, "--no-deps", "--editable", PROJECT], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
