"""What a model folder holds: which files are read from it, which never are and why, and when it is refused unread."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Use = Literal["read", "missing", "never read", "not used"]

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
ADAPTER = "adapter_config.json"
SAFETENSORS, GGUF = ".safetensors", ".gguf"
PICKLES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"})
CODE = frozenset({".py", ".pyc", ".pyd", ".so", ".dll", ".dylib", ".sh", ".bat", ".ps1", ".ipynb", ".whl", ".cu"})
_READ = {
    **dict.fromkeys((CONFIG, "generation_config.json", INDEX, "xai.json"), "settings"),
    **dict.fromkeys(("processor_config.json", "preprocessor_config.json"), "processor"),
    **dict.fromkeys(("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"), "tokenizer"),
    **dict.fromkeys(("added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "tokenizer.model"), "tokenizer"),
    **dict.fromkeys(("chat_template.jinja", "chat_template.json"), "chat template"),
    "video_preprocessor_config.json": "processor",
}
"""What is read from a folder beside its weights, and what it is."""
_READ_BESIDE_GGUF = frozenset({"tokenizer.json", "tokenizer_config.json", "xai.json"})
_VOCABULARIES = frozenset({"vocab.json", "vocab.txt", "merges.txt", "tokenizer.model"})
"""What a tokenizer is made of where there is no ``tokenizer.json``."""
_FORMATS = {".json": "JSON", ".jinja": "Jinja", GGUF: "GGUF"}
_ORDER: tuple[Use, ...] = ("read", "missing", "never read", "not used")
_ATTENTION = (None, "eager", "sdpa")
_PICKLE = "a pickle can run code when it is read"
_NAMES_CODE = "it names code (auto_map), which is never run"
_MAX_HEADER = 100_000_000
"""Bytes that safetensors allows."""


@dataclass(frozen=True)
class ModelFile:
    """One file of a model folder.

    Attributes:
        name: its path below the folder, with ``/``.
        what: weights, settings, tokenizer, processor, chat template, pickle, code, or other.
        format: how it is written; of weights by their first bytes, since a name proves nothing.
        n_bytes: its size; 0 if it is missing.
        use: ``read`` if it is, or if nothing else in the folder takes its place; ``missing`` if the settings name it as
            weights and it is not there.
        note: why it is not read, or what of it has no effect.
    """

    name: str
    what: str
    format: str
    n_bytes: int
    use: Use
    note: str = ""


def model_files(folder: Path, gguf_file: str | None = None) -> list[ModelFile]:
    """Every file of a folder, those that are read first; of weights, this looks at the first bytes alone.

    Args:
        gguf_file: name of the GGUF file whose content is read instead of what ``config.json`` describes.
    """
    weights = {gguf_file} if gguf_file else set(weight_names(folder))
    found = [_described(folder, path, weights, gguf_file) for path in sorted(folder.rglob("*")) if path.is_file()]
    missing = sorted(weights - {file.name for file in found})
    found += [ModelFile(name, "weights", "", 0, "missing", "the settings name it") for name in missing]
    return sorted(found, key=lambda file: _ORDER.index(file.use))


def refuse_unsafe(folder: Path, name: str, gguf_file: str | None = None) -> None:
    """Refuse a folder whose weights are neither safetensors nor GGUF, or that asks for code of others.

    transformers reads a pickle, whatever it is told, where the settings or the index of the weights name one.

    Args:
        name: what the user calls the model.
        gguf_file: as for :func:`model_files`.

    Raises:
        ValueError: its weights are a pickle or lie outside of it, it asks for attention that may be code of a hub, or
            it has an adapter, which would be left out; the message says what to do.
    """
    if (folder / ADAPTER).is_file():
        raise ValueError(
            f"{name!r} holds an adapter ({ADAPTER}), which would be left out; merge it into its model with "
            "merge_and_unload(), save that, and give its folder"
        )
    if gguf_file:
        return
    settings = _json(folder / CONFIG)
    named = [value for _, value in _everywhere(settings, "transformers_weights") if value is not None]
    for weights in [*map(str, named), *weight_names(folder)]:
        _refuse_weights(weights, name)
    pickles = sorted(path.name for path in folder.glob("*") if path.suffix in PICKLES)
    if settings and pickles and not any(folder.glob(f"*{SAFETENSORS}")):
        raise ValueError(
            f"the weights of {name!r} are a pickle ({pickles[0]}), which can run code when it is read, and so is not "
            "read; get the model as safetensors, or load it elsewhere and save it anew with save_pretrained()"
        )
    for key, value in _everywhere(settings, "attn_implementation", "_attn_implementation"):
        if not all(one in _ATTENTION for one in (value.values() if isinstance(value, dict) else [value])):
            raise ValueError(
                f"{CONFIG} of {name!r} asks for attention by {value!r}, which may be code that is fetched from a hub; "
                f"take {key!r} out of the file"
            )


def _refuse_weights(weights: str, name: str) -> None:
    if not weights.endswith((SAFETENSORS, f"{SAFETENSORS}.index.json")):
        raise ValueError(
            f"{name!r} names {weights!r} as its weights; only safetensors are read, since a pickle can run code; "
            "get the model as safetensors"
        )
    if weights != Path(weights).name or "\\" in weights:
        raise ValueError(f"{name!r} names {weights!r} as its weights, outside of its own folder; get the model anew")


def weight_names(folder: Path) -> list[str]:
    """The files of weights that transformers reads, as it chooses among them; none where there is nothing to choose."""
    named = _json(folder / CONFIG).get("transformers_weights")
    first = WEIGHTS if (folder / WEIGHTS).is_file() else INDEX
    first = named if isinstance(named, str) else first
    if not first.endswith(".json"):
        return [first]
    shards = _json(folder / first).get("weight_map")
    return sorted({str(shard) for shard in shards.values()}) if isinstance(shards, dict) else []


def _described(folder: Path, path: Path, weights: set[str], gguf_file: str | None) -> ModelFile:
    name, size, ending = path.relative_to(folder).as_posix(), path.stat().st_size, path.suffix.lower()
    if name in weights:
        return _described_weights(name, _weight_format(path), size, "GGUF" if gguf_file else "safetensors")
    if ending in PICKLES:
        return ModelFile(name, "pickle", "pickle", size, "never read", _PICKLE)
    if ending in CODE:
        return ModelFile(name, "code", ending[1:], size, "never read", "code of a checkpoint is never run")
    form = _FORMATS.get(ending, ending[1:])
    if ending in (SAFETENSORS, GGUF):
        note = "others are read" if weights else f"it is not {WEIGHTS}, and no index names it"
        return ModelFile(name, "weights", form, size, "not used", note)
    what = "chat template" if name.startswith("additional_chat_templates/") else _READ.get(name)
    if what is None:
        return ModelFile(name, "other", form, size, "not used")
    if gguf_file and name not in _READ_BESIDE_GGUF | _VOCABULARIES:
        return ModelFile(name, what, form, size, "not used", "the GGUF file has it")
    instead = "tokenizer.json" if name in _VOCABULARIES else WEIGHTS if name == INDEX else None
    if instead is not None and (folder / instead).is_file():
        return ModelFile(name, what, form, size, "not used", f"{instead} is read")
    return ModelFile(name, what, form, size, "read", _NAMES_CODE if "auto_map" in _json(path) else "")


def _described_weights(name: str, form: str, size: int, wanted: str) -> ModelFile:
    if form == wanted:
        return ModelFile(name, "weights", form, size, "read")
    note = _PICKLE if form == "pickle" else f"its content is not {wanted}"
    return ModelFile(name, "weights", form, size, "never read", note)


def _weight_format(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(9)
    if start[:4] == b"GGUF":
        return "GGUF"
    if start[:1] == b"\x80" or start[:2] == b"PK":  # Python's own, and the archive that torch.save writes
        return "pickle"
    header = len(start) == 9 and struct.unpack("<Q", start[:8])[0] <= _MAX_HEADER and start[8:] == b"{"
    return "safetensors" if header else "unknown"


def _everywhere(settings: Mapping[str, Any], *keys: str) -> Iterator[tuple[str, Any]]:
    """What the settings and those of every part of the model say under these names."""
    for key, value in settings.items():
        if key in keys:
            yield key, value
        elif isinstance(value, dict):
            yield from _everywhere(value, *keys)


def _json(path: Path) -> dict[str, Any]:
    """The object of a JSON file; empty where there is none: what loads the folder afterwards says what is wrong."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
