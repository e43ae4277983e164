"""What is installed, what a model folder would load, and whether the model can be explained: `xai doctor`."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
import torch

from xai.attribution.families import UnsupportedModelError
from xai.attribution.ocr import apt_line, engine_names, get_engine
from xai.attribution.verify import Verification, verify
from xai.environment import installed_versions
from xai.model_files import ModelFile
from xai.models import files_of, load_processor, load_weights
from xai.processors import reader_of
from xai.schema import Mode


@dataclass(frozen=True)
class Diagnosis:
    """What was found out about one model.

    Attributes:
        problem: why it cannot be explained; empty if it can.
        modes: what it can be shown; empty if it cannot be asked.
        asking: why it cannot be asked: it lacks a processor, a tokenizer or a chat template, or has an unknown one, or
            one that fails. What is given as tensors can be explained nevertheless.
        files: what its folder holds, and what is read of it.
    """

    name: str
    verification: Verification | None
    problem: str
    modes: tuple[Mode, ...] = ()
    asking: str = ""
    files: tuple[ModelFile, ...] = ()

    def report(self) -> dict[str, Any]:
        """Everything in JSON values: every module with its rule, and every check."""
        found = self.verification
        report: dict[str, Any] = {"name": self.name, "can_be_explained": not self.problem, "problem": self.problem}
        report |= {"modes": list(self.modes), "asking": self.asking, "files": [asdict(file) for file in self.files]}
        if found is None:
            return report
        checks = found.checks_frame().to_dict("records")
        return report | {
            "model_type": found.model_type,
            "family": found.family,
            "modules": found.frame().to_dict("records"),
            "uncovered": dict(found.uncovered),
            "checks": [{key: _plain(value) for key, value in check.items()} for check in checks],
        }


def versions() -> dict[str, str]:
    """Python, the system, and the packages that decide numbers."""
    return {**installed_versions(), "system": platform.platform()}


def devices() -> list[dict[str, str]]:
    """The devices that torch can run on here: ``device`` and ``what`` it is."""
    found = [{"device": "cpu", "what": f"threads: {torch.get_num_threads()}"}]
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        what = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
        found.append({"device": f"cuda:{index}", "what": what})
    if torch.backends.mps.is_available():
        found.append({"device": "mps", "what": "Apple GPU"})
    return found


OCR_LANGUAGES = ("en", "uk", "ar", "zh-Hans")
"""The languages that the doctor looks for."""


def ocr_engines() -> list[dict[str, str]]:
    """The OCR engines: ``engine``, ``version``, the ``languages`` read here, and what to ``install`` for more."""
    rows = []
    for name in engine_names():
        engine = get_engine(name)
        languages = engine.languages()
        lacking = [one for one in OCR_LANGUAGES if one not in languages]
        install = ""
        if name == "tesseract" and lacking:
            install = apt_line(lacking)
        elif name == "rapidocr" and not languages:
            install = "pip install 'meme-xai[ocr]'"
        elif name == "easyocr" and not languages:
            install = "pip install easyocr, and its weights in ~/.EasyOCR/model"
        version = engine.version if languages else "not installed"
        rows.append({"engine": name, "version": version, "languages": ", ".join(languages), "install": install})
    return rows


def diagnose(name: str, device: str | None = None, dtype: str | None = None) -> Diagnosis:
    """Look at the files of a model and load it; look at every module of it, see on short random inputs whether
    relevance is conserved, and whether it has what writes a prompt.

    Raises:
        ValueError: there is no such model, or several.
    """
    files = tuple(files_of(name))
    try:
        verification = verify(load_weights(name, device=device, dtype=dtype))
    except UnsupportedModelError as error:
        return Diagnosis(name, None, str(error), files=files)
    except ValueError as error:
        if not files:
            raise
        return Diagnosis(name, None, str(error), files=files)
    modes, asking = _asked(name)
    return Diagnosis(name, verification, _problem(verification), modes, asking, files)


def _asked(name: str) -> tuple[tuple[Mode, ...], str]:
    """The modes of a model, or none and why it cannot be asked; its chat template is tried."""
    try:
        reader = reader_of(load_processor(name))
        reader.chat("a caption", with_picture="image" in reader.modes)
    except ValueError as error:
        return (), str(error)
    return reader.modes, ""


def file_table(files: Sequence[ModelFile]) -> pd.DataFrame:
    """One row a file: ``file``, ``what`` it is, ``format``, ``size``, whether it is ``read``, and a ``note``."""
    names = {"read": "yes", "missing": "MISSING", "never read": "never", "not used": "no"}
    rows = [(file.name, file.what, file.format, _size(file.n_bytes), names[file.use], file.note) for file in files]
    return pd.DataFrame(rows, columns=["file", "what", "format", "size", "read", "note"])


def _size(n_bytes: int) -> str:
    units = [(name, n_bytes / 1000**power) for power, name in ((3, "GB"), (2, "MB"), (1, "kB"))]
    return next((f"{value:.1f} {name}" for name, value in units if value >= 1), f"{n_bytes} B")


def module_table(verification: Verification) -> pd.DataFrame:
    """One row a kind of module: ``module`` with ``*`` for the layer's number, ``class``, ``rule``, and ``n``."""
    modules = verification.frame()
    modules["module"] = [re.sub(r"(?<=\.)\d+(?=\.|$)", "*", name) or "(the model)" for name in modules["module"]]
    counted = modules.groupby(["module", "class", "rule"], sort=False).size()
    return counted.rename("n").reset_index()


def check_table(verification: Verification) -> pd.DataFrame:
    """One row a check, as text: ``check``, ``expected``, ``found``, ``error`` and its ``limit``, ``result``."""
    verdict = {True: "holds", False: "FAILS", None: "reported"}
    rows = [
        {
            "check": check.name,
            "expected": f"{check.expected:.6g}",
            "found": f"{check.found:.6g}",
            "error": f"{check.error:+.1e}",
            "limit": "" if check.limit is None else f"{check.limit:.0e}",
            "result": verdict[check.passed],
        }
        for check in verification.checks
    ]
    return pd.DataFrame(rows, columns=["check", "expected", "found", "error", "limit", "result"])


def _problem(verification: Verification) -> str:
    if verification.uncovered:
        named = [f"{name} ({problem})" for name, problem in verification.uncovered.items()]
        more = ", …" if len(named) > 8 else ""
        return (
            f"{len(named)} module(s) have no relevance rule: {', '.join(named[:8])}{more}; "
            "see the page on adding a family"
        )
    failed = [check.name for check in verification.checks if check.passed is False]
    return f"the self-check failed: {'; '.join(failed)}" if failed else ""


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value
