"""Loads a vision-language model or a text decoder with what writes its prompts, and lets it answer in batches."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
    GenerationConfig,
    GgufConfig,
    LogitsProcessor,
    LogitsProcessorList,
)
from transformers.utils import cached_file

from xai.attribution.families import family_of
from xai.model_files import CONFIG, INDEX, ModelFile, model_files, refuse_unsafe
from xai.planted import CHECKPOINT
from xai.processors import Reader, TextProcessor, reader_of
from xai.prompts import EncodedPrompt, PromptStyle, collate, encode_message
from xai.weights import WeightsError, check_weight_files, refuse_drawn_weights

SETTINGS_FILE = "xai.json"
SAMPLED_VALUES = 256


class Generated(NamedTuple):
    """A greedy answer: its ids, and the natural logarithm of their probability by the model's own logits."""

    ids: tuple[int, ...]
    log_probability: float


@dataclass(frozen=True, eq=False)
class VisionLanguageModel:
    """A loaded model, one that reads text only included: what runs it, and what identifies it in a run.

    ``processor`` has a ``tokenizer``, and nothing else for a model that reads text only. ``style`` is the prompt that
    suits the model unless another is asked for. ``lock`` is held while the model is explained, since patches belong
    to the model's modules; threads that share a model wait for each other.
    """

    name: str
    model: nn.Module = field(repr=False)
    processor: Any = field(repr=False)
    fingerprint: str
    style: PromptStyle
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def device(self) -> torch.device:
        """Where the model's first parameter lies."""
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the model's first parameter."""
        return next(self.model.parameters()).dtype

    @property
    def reader(self) -> Reader:
        """How its prompts are written."""
        return reader_of(self.processor)

    def describe(self) -> dict[str, Any]:
        """What a run records of the model, in JSON values."""
        config: Any = self.model.config
        return {
            "name": self.name,
            "type": config.model_type,
            "fingerprint": self.fingerprint,
            "device": self.device.type,
            "dtype": str(self.dtype).removeprefix("torch."),
            "attention": config._attn_implementation,
        }

    def generate(self, prompts: Sequence[EncodedPrompt], max_new_tokens: int = 512) -> list[tuple[int, ...]]:
        """Greedy answers to a batch of prompts: the generated ids, the end-of-sequence token included.

        Sampling, beams, penalties and forbidden tokens of the checkpoint's own generation settings are not used, so
        that the ids are those with the highest logits.
        """
        return [answer.ids for answer in self.generate_scored(prompts, max_new_tokens)]

    @torch.inference_mode()
    def generate_scored(self, prompts: Sequence[EncodedPrompt], max_new_tokens: int = 512) -> list[Generated]:
        """The same answers with their log-probabilities."""
        ends = self._end_ids()
        # Some tokenizers of text decoders have no padding token; any will do, since nothing attends to it.
        pad_id = ends[0] if self.processor.tokenizer.pad_token_id is None else self.processor.tokenizer.pad_token_id
        batch = collate([prompt.inputs for prompt in prompts], pad_id, side="left")
        batch = {name: tensor.to(self.device) for name, tensor in batch.items()}
        if "pixel_values" in batch:
            batch["pixel_values"] = batch["pixel_values"].to(self.dtype)
        config = GenerationConfig(
            do_sample=False,
            num_beams=1,
            repetition_penalty=1.0,
            max_new_tokens=max_new_tokens,
            eos_token_id=ends,
            pad_token_id=pad_id,
        )
        chosen = _ChosenLogProbabilities()
        with self.lock, _plain_generation(self.model):
            output = self.model.generate(  # type: ignore[operator]
                **batch, generation_config=config, logits_processor=LogitsProcessorList([chosen])
            )
        answers = [_until_end(row, ends) for row in output[:, batch["input_ids"].shape[1] :].tolist()]
        return [Generated(ids, chosen.total(row, len(ids))) for row, ids in enumerate(answers)]

    def reply(self, texts: Sequence[str], max_new_tokens: int = 512) -> list[str]:
        """Greedy answers to messages of text alone, without special tokens: for questions that are about no meme.

        Raises:
            ValueError: a text spells a special token.
        """
        prompts = [encode_message(self.processor, text) for text in texts]
        decode = self.processor.tokenizer.decode
        return [str(decode(ids, skip_special_tokens=True)) for ids in self.generate(prompts, max_new_tokens)]

    def _end_ids(self) -> list[int]:
        configured = self.model.generation_config.eos_token_id  # type: ignore[union-attr]
        if configured is None:
            configured = self.processor.tokenizer.eos_token_id
        return list(configured) if isinstance(configured, (list, tuple)) else [int(configured)]  # type: ignore[arg-type]


@dataclass(frozen=True)
class ModelSource:
    """Where a model is and how it is loaded, for work that loads it in several places.

    Attributes:
        name: as for :func:`load_model`.
        device: where each is to run: ``"cpu"``, ``"cuda"`` for all GPUs that there are, ``"cuda:1"`` for one; by
            default all GPUs, or the CPU where there is none.
        dtype: as for :func:`load_model`.
    """

    name: str = "planted"
    device: str | None = None
    dtype: str | None = None

    def devices(self) -> list[str]:
        """The devices of this machine that are meant; one model goes on each."""
        if self.device in (None, "cuda") and torch.cuda.is_available():
            return [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        return [self.device or "cpu"]

    def load(self, device: str | None = None) -> VisionLanguageModel:
        """Load it, on one of its devices or else the first of them; raises like :func:`load_model`."""
        return load_model(self.name, device=device or self.devices()[0], dtype=self.dtype)

    def style(self) -> PromptStyle:
        """The prompt that suits the model, without loading it."""
        return _style(_located(self.name).folder)


def load_model(
    name: str | Path = "planted",
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | str | None = None,
    style: PromptStyle | None = None,
) -> VisionLanguageModel:
    """Load ``"planted"`` (the model that ships), a checkpoint folder, a GGUF file, or a model of the Hugging Face hub.

    A vision-language model is loaded with its processor and a text decoder with its tokenizer; a text decoder can be
    asked in mode ``text`` only. The families that exist are those of ``xai models``.

    Args:
        name: a path that ends in ``.gguf``, or a folder with one such file and no ``config.json``, is read as GGUF:
            its weights are unpacked to floats, since relevance cannot go through packed ones.
        device: where to run; CUDA when there is one, else CPU.
        dtype: float32 on CPU and the checkpoint's own type elsewhere, unless given.
        style: prompt language and variant; the checkpoint's ``xai.json`` may name the variant it knows.

    Code that comes with a checkpoint is never run, and only safetensors and GGUF weights are read.

    Raises:
        ValueError: there is no such model here, it could not be loaded without running code, it is of no family that
            can be explained, or it cannot be asked: its prompts are written in an unknown way, or it has no chat
            template.
    """
    checkpoint = _located(name)
    _refuse_unsafe(checkpoint)
    with _load_advice(checkpoint):
        config = AutoConfig.from_pretrained(checkpoint.source, **checkpoint.options)
        processor = _processor(checkpoint, config)
    reader_of(processor)
    with _load_advice(checkpoint):
        model = _weights(checkpoint, config, device, dtype)
    family_of(model)
    chosen = style or _style(checkpoint.folder)
    return VisionLanguageModel(checkpoint.name, model, processor, fingerprint(model), chosen)


def load_processor(name: str | Path = "planted") -> Any:
    """What :func:`load_model` has as ``processor``, without the weights.

    Raises:
        ValueError: there is no such model here, or it has no processor or tokenizer that can be read.
    """
    checkpoint = _located(name)
    with _load_advice(checkpoint):
        return _processor(checkpoint, AutoConfig.from_pretrained(checkpoint.source, **checkpoint.options))


def load_weights(
    name: str | Path = "planted",
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | str | None = None,
) -> nn.Module:
    """The bare model of :func:`load_model`, of whatever family, without what it takes to ask it a question.

    Raises:
        ValueError: there is no such model here, or it is no language model.
    """
    checkpoint = _located(name)
    _refuse_unsafe(checkpoint)
    with _load_advice(checkpoint):
        config = AutoConfig.from_pretrained(checkpoint.source, **checkpoint.options)
        return _weights(checkpoint, config, device, dtype)


def load_dual_encoder(
    name: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | str | None = None,
) -> tuple[nn.Module, Any]:
    """A model that embeds texts and pictures into one space, and its processor; arguments as for :func:`load_model`.

    Raises:
        ValueError: there is no such model here, it could not be loaded without running code, or it is no such model.
    """
    checkpoint = _located(name)
    _refuse_unsafe(checkpoint)
    with _load_advice(checkpoint, "a folder with config.json of a dual encoder, or a hub id in reach"):
        config = AutoConfig.from_pretrained(checkpoint.source, **checkpoint.options)
        made = AutoModel._model_mapping.get(type(config), None)
        if not (hasattr(made, "get_text_features") and hasattr(made, "get_image_features")):
            raise ValueError(f"model type {config.model_type!r} does not embed both texts and pictures")
        processor = AutoProcessor.from_pretrained(checkpoint.source, **checkpoint.options)
        return _weights(checkpoint, config, device, dtype, AutoModel), processor


@dataclass(frozen=True)
class _Checkpoint:
    """Where a model is read from.

    Attributes:
        name: as the user gave it.
        folder: where settings of this package would lie; need not exist.
        source: what transformers is to look at: a folder, or an id of the hub.
        gguf_file: name of the GGUF file in ``source``, if it is to be read from one.
    """

    name: str
    folder: Path
    source: str
    gguf_file: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """How every part of it is read."""
        return {"trust_remote_code": False} | ({"gguf_file": self.gguf_file} if self.gguf_file else {})


def _located(name: str | Path) -> _Checkpoint:
    """Which checkpoint is meant; ValueError if it takes a choice or a package that is not there."""
    path = CHECKPOINT if str(name) == "planted" else Path(name)
    folder, files = path, []
    if path.suffix == ".gguf" and path.is_file():
        folder, files = path.parent, [path]
    elif path.is_dir() and not (path / "config.json").is_file():
        files = sorted(path.glob("*.gguf"))
    if len(files) > 1:
        raise ValueError(
            f"{str(name)!r} holds {len(files)} GGUF files; name one, such as {files[0].name!r}, by its path"
        )
    if files and find_spec("gguf") is None:
        raise ValueError(f"{files[0].name!r} is a GGUF file, which takes a package to be read: pip install gguf")
    source = str(folder) if folder.is_dir() else str(name)
    return _Checkpoint(str(name), folder, source, files[0].name if files else None)


def files_of(name: str | Path = "planted") -> list[ModelFile]:
    """Every file of a model's folder and whether it is read; of a model of the hub, of what has been fetched of it.

    Raises:
        ValueError: there is no such model here.
    """
    checkpoint = _located(name)
    folder = _fetched(checkpoint)
    return [] if folder is None else model_files(folder, checkpoint.gguf_file)


def _refuse_unsafe(checkpoint: _Checkpoint) -> None:
    folder = _fetched(checkpoint)
    if folder is not None:
        refuse_unsafe(folder, checkpoint.name, checkpoint.gguf_file)


def _fetched(checkpoint: _Checkpoint) -> Path | None:
    """The folder itself; of a model of the hub that of its settings, once they and the index of its weights are there.

    ``None`` where there is no such model: loading says so better.
    """
    if Path(checkpoint.source).is_dir():
        return Path(checkpoint.source)
    found = [path for path in (_of_hub(checkpoint, CONFIG), _of_hub(checkpoint, INDEX)) if path is not None]
    return found[0].parent if found else None


def _of_hub(checkpoint: _Checkpoint, file: str) -> Path | None:
    try:
        return Path(cached_file(checkpoint.source, file))
    except (OSError, ValueError):
        return None


def _sees(config: Any) -> bool:
    return type(config) in AutoModelForImageTextToText._model_mapping


def _processor(checkpoint: _Checkpoint, config: Any) -> Any:
    if _sees(config):
        return AutoProcessor.from_pretrained(checkpoint.source, **checkpoint.options)
    return TextProcessor(AutoTokenizer.from_pretrained(checkpoint.source, **checkpoint.options))


def _weights(
    checkpoint: _Checkpoint,
    config: Any,
    device: str | torch.device | None,
    dtype: torch.dtype | str | None,
    loader: Any = None,
) -> nn.Module:
    loader = loader or (AutoModelForImageTextToText if _sees(config) else AutoModelForCausalLM)
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if dtype is None:
        dtype = torch.float32 if chosen.type == "cpu" else "auto"
    options = checkpoint.options | {"config": config, "dtype": dtype}
    options |= (
        {"quantization_config": GgufConfig(dequantize=True)} if checkpoint.gguf_file else {"use_safetensors": True}
    )
    if not checkpoint.gguf_file:
        check_weight_files(checkpoint.folder)
    model, found = loader.from_pretrained(checkpoint.source, **options, output_loading_info=True)
    refuse_drawn_weights(found["missing_keys"])
    loaded: nn.Module = model.to(chosen).eval()
    return loaded


def fingerprint(model: nn.Module) -> str:
    """A hash of every parameter's name, shape and type and of up to 256 values spread evenly over it."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        flat = tensor.detach().reshape(-1)
        sample = flat[:: max(1, flat.numel() // SAMPLED_VALUES)].float().cpu().numpy()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode() + sample.tobytes())
    return digest.hexdigest()[:16]


def _style(folder: Path) -> PromptStyle:
    settings = folder / SETTINGS_FILE
    if not settings.is_file():
        return PromptStyle()
    try:
        return PromptStyle(variant=str(json.loads(settings.read_text(encoding="utf-8"))["prompt_variant"]))
    except (ValueError, KeyError, TypeError):
        raise ValueError(f'{SETTINGS_FILE} in the model folder must be {{"prompt_variant": "NAME"}}') from None


@contextmanager
def _load_advice(
    checkpoint: _Checkpoint, give: str = "'planted', a folder with config.json, a GGUF file, or a hub id in reach"
) -> Iterator[None]:
    """Within the block, what transformers raises becomes one line that says what to give.

    That is anything: of a damaged file its readers raise whatever they met, tokenizers a bare ``Exception``.
    """
    try:
        yield
    except WeightsError as error:
        raise ValueError(f"cannot load model {checkpoint.name!r}: {error}") from None
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if "trust_remote_code" in str(error):
            reason = "it needs code of its own that comes with it, which is never run"
        raise ValueError(f"cannot load model {checkpoint.name!r}: {reason} — give {give}") from error


class _ChosenLogProbabilities(LogitsProcessor):  # type: ignore[misc]
    """Keeps, step by step, the log-probability of the token that greedy decoding takes, and changes nothing.

    It sees the model's own logits in float32, since no other processor is at work (:func:`_plain_generation`).
    """

    def __init__(self) -> None:
        self._steps: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        best, token = scores.max(dim=-1, keepdim=True)
        rest = scores.scatter(-1, token, -torch.inf).logsumexp(dim=-1, keepdim=True)
        # The logarithm of best's softmax without the rounding of one that is near 1.
        self._steps.append(-nn.functional.softplus(rest - best).squeeze(-1))
        return scores

    def total(self, row: int, n_tokens: int) -> float:
        """The sum over the first tokens of one answer, in float64."""
        return float(torch.stack(self._steps[:n_tokens])[:, row].double().sum())


@contextmanager
def _plain_generation(model: nn.Module) -> Iterator[None]:
    """Within the block, the checkpoint's own generation settings are out of reach.

    transformers fills in from them whatever a call leaves unset: suppressed tokens, n-grams that must not repeat.
    """
    own = model.generation_config
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = own


def _until_end(ids: Sequence[int], ends: Sequence[int]) -> tuple[int, ...]:
    for place, token in enumerate(ids):
        if token in ends:
            return tuple(ids[: place + 1])
    return tuple(ids)
