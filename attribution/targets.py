"""From labels and spans of an answer to the tokens whose logits are differentiated, and what is made of the logits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal, Protocol, get_args

import torch
from torch import Tensor

from xai.schema import ALL_LABELS, LabelSpan

TargetKind = Literal["logit", "log_probability", "contrastive"]
PlainKind = Literal["logit", "log_probability"]


class Tokenizer(Protocol):
    """What is asked of a tokenizer of transformers."""

    @property
    def all_special_ids(self) -> list[int]: ...

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]: ...

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str | None]: ...


class EncodingTokenizer(Tokenizer, Protocol):
    """A tokenizer that encodes as well."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...


@dataclass(frozen=True)
class Target:
    """A quantity to differentiate; its definition is :func:`target_score`.

    ``positions[i]`` is the index, in the whole sequence of prompt and answer, of the token *being predicted*
    (its logit sits one position earlier), and ``token_ids[i]`` the token whose logit counts there. A label
    that was not found in the answer has neither; see :attr:`located`. The tokens need not be those that the
    model wrote: an answer that is only teacher-forced is a target like any other.

    Attributes:
        kind: ``logit`` (the sum of the logits), ``log_probability`` (the sum of their log-softmax), or
            ``contrastive`` (the smallest lead, over the alternatives, of a token over its alternative).
        contrast_ids: for ``contrastive``, the token that stands against each of ``token_ids``; else empty.
        contrast: for ``contrastive``, the label that each alternative begins; else empty.
    """

    name: str
    positions: tuple[int, ...]
    token_ids: tuple[int, ...]
    kind: TargetKind = "logit"
    contrast_ids: tuple[int, ...] = ()
    contrast: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in get_args(TargetKind):
            raise ValueError(f"unknown kind of target {self.kind!r}; there are {', '.join(get_args(TargetKind))}")
        if len(self.positions) != len(self.token_ids):
            raise ValueError(
                f"target {self.name!r} has {len(self.positions)} positions and {len(self.token_ids)} token ids"
            )
        expected = len(self.positions) if self.kind == "contrastive" else 0
        if not len(self.contrast_ids) == len(self.contrast) == expected:
            raise ValueError(
                f"target {self.name!r} of kind {self.kind} needs {expected} contrast ids and labels, got "
                f"{len(self.contrast_ids)} and {len(self.contrast)}"
            )

    @property
    def located(self) -> bool:
        """Whether the target has any token."""
        return bool(self.positions)


def target_score(target: Target, logits: Tensor, positions: Sequence[int]) -> Tensor:
    """The target's value from raw logits, ``(..., n_positions, vocab) -> (...)``, in float32 at least.

    Args:
        positions: the predicted position of every row of ``logits``.
    """
    row_of = {position: row for row, position in enumerate(positions)}
    rows = torch.tensor([row_of[position] for position in target.positions], device=logits.device)
    chosen = logits.to(torch.promote_types(logits.dtype, torch.float32))[..., rows, :]
    if target.kind == "log_probability":
        chosen = chosen.log_softmax(dim=-1)
    each = _pick(chosen, target.token_ids)
    if target.kind == "contrastive":
        return (each - _pick(chosen, target.contrast_ids)).amin(dim=-1)
    return each.sum(dim=-1)


def resolve(target: Target, logits: Tensor, positions: Sequence[int]) -> Target:
    """A contrastive target reduced to its strongest alternative under ``logits`` ``(n_positions, vocab)``.

    Other targets are returned as they are. What is scored later, on changed inputs, has to be the quantity
    that was differentiated, and not the lead over whichever alternative is strongest there.
    """
    if len(target.contrast_ids) < 2:
        return target
    single = [_alternative(target, index) for index in range(len(target.contrast_ids))]
    return min(single, key=lambda one: float(target_score(one, logits.detach(), positions)))


def _alternative(target: Target, index: int) -> Target:
    return replace(
        target,
        positions=target.positions[index : index + 1],
        token_ids=target.token_ids[index : index + 1],
        contrast_ids=target.contrast_ids[index : index + 1],
        contrast=target.contrast[index : index + 1],
    )


def _pick(logits: Tensor, token_ids: Sequence[int]) -> Tensor:
    """The logit of one token a row, ``(..., n, vocab) -> (..., n)``."""
    columns = torch.tensor(token_ids, device=logits.device)
    return logits[..., torch.arange(len(token_ids), device=logits.device), columns]


def label_targets(
    tokenizer: Tokenizer,
    generated_ids: Sequence[int],
    generated_text: str,
    label_spans: Sequence[LabelSpan],
    *,
    prompt_length: int,
    kind: PlainKind = "logit",
) -> list[Target]:
    """One target a label, in the order of first mention; a label written twice has the tokens of both places.

    A token belongs to a label if it covers at least part of one of the label's characters. Labels without
    such a token are returned with ``located == False``, for the caller to report.

    Args:
        generated_ids: the ids that the model produced; they are never encoded anew.
        generated_text: what they decode to, special tokens skipped; the spans refer to it.
        prompt_length: number of tokens before the first generated one, padding included.

    Raises:
        ValueError: the ids decode to another text than ``generated_text``.
    """
    offsets = _checked_offsets(tokenizer, generated_ids, generated_text)
    found: dict[str, set[int]] = {}
    for span in label_spans:
        found.setdefault(span.label, set()).update(_covering(offsets, span.start, span.end))
    return [
        _target(label, sorted(indices), generated_ids, prompt_length=prompt_length, kind=kind)
        for label, indices in found.items()
    ]


def span_target(
    tokenizer: Tokenizer,
    generated_ids: Sequence[int],
    start: int,
    end: int,
    *,
    prompt_length: int,
    kind: PlainKind = "logit",
    name: str | None = None,
) -> Target:
    """The tokens that hold characters ``start`` to ``end`` of the answer: "why this word of the rationale?".

    Args:
        name: the characters themselves by default.

    Raises:
        ValueError: the span is empty or reaches out of the answer.
    """
    text, offsets = token_offsets(tokenizer, generated_ids)
    if not 0 <= start < end <= len(text):
        raise ValueError(f"no characters {start} to {end} in an answer of {len(text)} characters")
    label = text[start:end] if name is None else name
    return _target(label, _covering(offsets, start, end), generated_ids, prompt_length=prompt_length, kind=kind)


def token_target(
    tokenizer: Tokenizer,
    generated_ids: Sequence[int],
    index: int,
    *,
    prompt_length: int,
    kind: PlainKind = "logit",
) -> Target:
    """One token of the answer, also a special one, named by its characters or else by the token itself.

    Raises:
        ValueError: the answer has no such token.
    """
    if not 0 <= index < len(generated_ids):
        raise ValueError(f"no token {index} in an answer of {len(generated_ids)} tokens")
    text, offsets = token_offsets(tokenizer, generated_ids)
    start, end = offsets[index]
    name = text[start:end] or str(tokenizer.convert_ids_to_tokens([int(generated_ids[index])])[0])
    return _target(name, [index], generated_ids, prompt_length=prompt_length, kind=kind)


def contrastive_target(
    tokenizer: EncodingTokenizer,
    generated_ids: Sequence[int],
    generated_text: str,
    label_span: LabelSpan,
    others: Sequence[str],
    *,
    prompt_length: int,
) -> Target:
    """The lead of a label over the strongest of ``others``, each at the first token where the two part.

    For every other label the whole answer is encoded with that label in the place of this one, since labels
    cannot be encoded alone: a byte-level tokenizer merges ``)"`` and the like. The first token in which this
    answer and the other differ is where the model decides between them, up to there both are the same
    sequence, and so the target of (A, B) is that of (B, A) with its sign changed. If the answer's ids are not
    those that the tokenizer gives to its text, they are kept up to the label and only the rest is encoded.
    Several others need not part at one position; the strongest is the one with the smallest lead (see
    :func:`target_score`).

    Args:
        label_span: the label and its place in ``generated_text``.
        others: one named label, or all that are to compete; leave out those that the answer gives as well.

    Raises:
        ValueError: no other label, one that is this label, or ids that decode to another text.
    """
    offsets = _checked_offsets(tokenizer, generated_ids, generated_text)
    if not others:
        raise ValueError(f"label {label_span.label!r} needs another label to be contrasted with")
    ids = [int(index) for index in generated_ids]
    parting = [_parting(tokenizer, ids, offsets, generated_text, label_span, other) for other in others]
    return Target(
        name=label_span.label,
        positions=tuple(prompt_length + index for index, _ in parting),
        token_ids=tuple(ids[index] for index, _ in parting),
        kind="contrastive",
        contrast_ids=tuple(token_id for _, token_id in parting),
        contrast=tuple(others),
    )


def encode_answer(tokenizer: EncodingTokenizer, text: str) -> list[int]:
    """The ids of an answer that the model did not give, for teacher forcing; without an end-of-sequence token."""
    return [int(index) for index in tokenizer.encode(text, add_special_tokens=False)]


def _parting(
    tokenizer: EncodingTokenizer,
    ids: Sequence[int],
    offsets: Sequence[tuple[int, int]],
    text: str,
    span: LabelSpan,
    other: str,
) -> tuple[int, int]:
    """Index of the first token in which the answer differs from the one with ``other``, and the other's token."""
    swapped = text[: span.start] + other + text[span.end :]
    canonical = encode_answer(tokenizer, text)
    if list(ids[: len(canonical)]) == canonical:
        other_ids = encode_answer(tokenizer, swapped)
    else:
        first = _covering(offsets, span.start, span.end)[0]
        other_ids = [*ids[:first], *encode_answer(tokenizer, swapped[offsets[first][0] :])]
    for index, (own, others) in enumerate(zip(ids, other_ids, strict=False)):
        if own != others:
            return index, others
    raise ValueError(f"label {span.label!r} cannot be contrasted with {other!r}: their tokens do not differ")


def _checked_offsets(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
    decoded, offsets = token_offsets(tokenizer, ids)
    if decoded != text:
        raise ValueError(
            f"the generated ids decode to {decoded[:80]!r} and not to the given text {text[:80]!r}; "
            "decode them with skip_special_tokens=True and clean_up_tokenization_spaces=False, and do not strip"
        )
    return offsets


def _covering(offsets: Sequence[tuple[int, int]], start: int, end: int) -> list[int]:
    """Indices of the tokens that hold at least part of a character between ``start`` and ``end``."""
    return [index for index, (low, high) in enumerate(offsets) if max(low, start) < min(high, end)]


def _target(
    name: str, indices: Sequence[int], generated_ids: Sequence[int], *, prompt_length: int, kind: PlainKind
) -> Target:
    return Target(
        name=name,
        positions=tuple(prompt_length + index for index in indices),
        token_ids=tuple(int(generated_ids[index]) for index in indices),
        kind=kind,
    )


def all_labels(targets: Sequence[Target]) -> Target:
    """All targets as one, named ``"*"``: every token counted once, however many labels share it.

    Raises:
        ValueError: the targets are of different kinds or contrastive, or give one position different tokens.
    """
    kinds: set[TargetKind] = {target.kind for target in targets} or {"logit"}
    if len(kinds) > 1:
        raise ValueError(f"targets of different kinds cannot be added: {', '.join(sorted(kinds))}")
    if "contrastive" in kinds:
        raise ValueError("contrastive targets have no sum; explain each label by itself")
    tokens: dict[int, int] = {}
    for target in targets:
        for position, token_id in zip(target.positions, target.token_ids, strict=True):
            if tokens.setdefault(position, token_id) != token_id:
                raise ValueError(f"two targets ask for different tokens at position {position}; explain them apart")
    positions = tuple(sorted(tokens))
    return Target(ALL_LABELS, positions, tuple(tokens[position] for position in positions), kinds.pop())


def token_offsets(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
    """The text of ``ids`` and the span of characters of each.

    For byte-level BPE (Qwen, Llama 3) and for BPE that falls back on bytes (Gemma, Llama 2). Works from the bytes of
    the tokens, so tokens that hold parts of one character all get that character's span. Bytes that are no UTF-8
    become U+FFFD, as in the tokenizer's own decoder. Special tokens are kept out of the text and have an empty span.

    Raises:
        ValueError: a token is written in neither way.
    """
    pieces = _token_bytes(tokenizer, ids)
    characters: list[str] = []
    byte_to_character: list[int] = []
    for character, size in _characters(b"".join(pieces)):
        byte_to_character.extend([len(characters)] * size)
        characters.append(character)
    offsets: list[tuple[int, int]] = []
    begin = 0
    for piece in pieces:
        end = begin + len(piece)
        if piece:
            offsets.append((byte_to_character[begin], byte_to_character[end - 1] + 1))
        else:
            here = byte_to_character[begin] if begin < len(byte_to_character) else len(characters)
            offsets.append((here, here))
        begin = end
    return "".join(characters), offsets


def _token_bytes(tokenizer: Tokenizer, ids: Sequence[int]) -> list[bytes]:
    added = tokenizer.added_tokens_decoder
    special = set(tokenizer.all_special_ids) | {index for index, token in added.items() if token.special}
    plain_ids = [int(index) for index in ids]
    # Rows of the embedding beyond the vocabulary have no token; the decoder writes nothing for them.
    tokens = [
        None if index in special else token
        for index, token in zip(plain_ids, tokenizer.convert_ids_to_tokens(plain_ids), strict=True)
    ]
    steps = _decoder_steps(tokenizer)
    if "ByteFallback" in steps:
        return _fallback_bytes(tokens, strip="Strip" in steps)
    return [_byte_level(token, index, index in added) for token, index in zip(tokens, plain_ids, strict=True)]


def _decoder_steps(tokenizer: Tokenizer) -> list[str]:
    """The kinds of the steps by which the tokenizer's own decoder makes text of tokens."""
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    settings = {} if decoder is None else json.loads(decoder.__getstate__())
    return [step["type"] for step in settings.get("decoders", [settings]) if step]


def _byte_level(token: str | None, index: int, added: bool) -> bytes:
    if token is None:
        return b""
    if all(character in BYTE_OF for character in token):
        return bytes(BYTE_OF[character] for character in token)
    if added:
        return token.encode()
    raise ValueError(
        f"token {token!r} (id {index}) is not byte-level BPE, nor does the tokenizer fall back on bytes; only such "
        "tokenizers are supported"
    )


def _fallback_bytes(tokens: Sequence[str | None], *, strip: bool) -> list[bytes]:
    """Tokens in which ``▁`` is a space and ``<0x0A>`` a byte.

    Args:
        strip: leave out the space with which the text begins, which the tokenizer put there.
    """
    pieces = [b"" if token is None else token.replace("\u2581", " ").encode() for token in tokens]
    matches = [(place, BYTE_TOKEN.fullmatch(token)) for place, token in enumerate(tokens) if token is not None]
    byte_at = {place: int(match[1], 16) for place, match in matches if match}
    written = [place for place, piece in enumerate(pieces) if piece]
    for is_bytes, run in groupby(written, key=byte_at.__contains__):
        if is_bytes:
            places = list(run)
            data = bytes(byte_at[place] for place in places)
            for place, byte in zip(places, data, strict=True):
                pieces[place] = bytes([byte]) if _is_utf8(data) else "\N{REPLACEMENT CHARACTER}".encode()
    if strip and written:
        pieces[written[0]] = pieces[written[0]].removeprefix(b" ")
    return pieces


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _characters(data: bytes) -> Iterator[tuple[str, int]]:
    """The characters of ``data`` with their number of bytes; invalid sequences come as U+FFFD."""
    while data:
        try:
            valid, invalid = data.decode(), 0
            rest = b""
        except UnicodeDecodeError as error:
            valid, invalid = data[: error.start].decode(), error.end - error.start
            rest = data[error.end :]
        for character in valid:
            yield character, len(character.encode())
        if invalid:
            yield "\N{REPLACEMENT CHARACTER}", invalid
        data = rest


def _byte_alphabet() -> dict[str, int]:
    """Character → byte of byte-level BPE: printable Latin-1 stands for itself, the rest is moved to U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + rank): byte for rank, byte in enumerate(moved)}


BYTE_OF: Mapping[str, int] = _byte_alphabet()
BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")
