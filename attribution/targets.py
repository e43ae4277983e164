"""From labels in the generated text to the generated tokens whose logits are differentiated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from xai.schema import ALL_LABELS, LabelSpan


class Tokenizer(Protocol):
    """What is asked of a tokenizer of transformers."""

    @property
    def all_special_ids(self) -> list[int]: ...

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]: ...

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str | None]: ...


@dataclass(frozen=True)
class Target:
    """A quantity to differentiate: the sum of the logits of ``token_ids`` at ``positions``.

    ``positions[i]`` is the index, in the whole sequence of prompt and answer, of the token *being predicted*
    (its logit sits one position earlier), and ``token_ids[i]`` the token whose logit counts there. A label
    that was not found in the answer has neither; see :attr:`located`.
    """

    name: str
    positions: tuple[int, ...]
    token_ids: tuple[int, ...]
    kind: str = "logit"

    def __post_init__(self) -> None:
        if len(self.positions) != len(self.token_ids):
            raise ValueError(
                f"target {self.name!r} has {len(self.positions)} positions and {len(self.token_ids)} token ids"
            )

    @property
    def located(self) -> bool:
        """Whether the target has any token."""
        return bool(self.positions)


def label_targets(
    tokenizer: Tokenizer,
    generated_ids: Sequence[int],
    generated_text: str,
    label_spans: Sequence[LabelSpan],
    *,
    prompt_length: int,
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
    text, offsets = token_offsets(tokenizer, generated_ids)
    if text != generated_text:
        raise ValueError(
            f"the generated ids decode to {text[:80]!r} and not to the given text {generated_text[:80]!r}; "
            "decode them with skip_special_tokens=True and clean_up_tokenization_spaces=False, and do not strip"
        )
    found: dict[str, set[int]] = {}
    for span in label_spans:
        covering = (index for index, (start, end) in enumerate(offsets) if max(start, span.start) < min(end, span.end))
        found.setdefault(span.label, set()).update(covering)
    return [
        Target(
            name=label,
            positions=tuple(prompt_length + index for index in sorted(indices)),
            token_ids=tuple(int(generated_ids[index]) for index in sorted(indices)),
        )
        for label, indices in found.items()
    ]


def all_labels(targets: Sequence[Target]) -> Target:
    """All targets as one, named ``"*"``: every token counted once, however many labels share it.

    Raises:
        ValueError: the targets are of different kinds, or give one position different tokens.
    """
    kinds = {target.kind for target in targets} or {"logit"}
    if len(kinds) > 1:
        raise ValueError(f"targets of different kinds cannot be added: {', '.join(sorted(kinds))}")
    tokens: dict[int, int] = {}
    for target in targets:
        for position, token_id in zip(target.positions, target.token_ids, strict=True):
            if tokens.setdefault(position, token_id) != token_id:
                raise ValueError(f"two targets ask for different tokens at position {position}; explain them apart")
    positions = tuple(sorted(tokens))
    return Target(ALL_LABELS, positions, tuple(tokens[position] for position in positions), kinds.pop())


def token_offsets(tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[str, list[tuple[int, int]]]:
    """The text of ``ids`` and the span of characters of each, for a byte-level BPE tokenizer.

    Works from the bytes of the tokens, so tokens that hold parts of one character all get that character's
    span. Bytes that are no UTF-8 become U+FFFD, as in the tokenizer's own decoder. Special tokens are kept
    out of the text and have an empty span.

    Raises:
        ValueError: a token is not written in the byte-level alphabet.
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
    pieces = []
    for index, token in zip(plain_ids, tokenizer.convert_ids_to_tokens(plain_ids), strict=True):
        # Rows of the embedding beyond the vocabulary have no token; the decoder writes nothing for them.
        if token is None or index in special:
            pieces.append(b"")
        elif all(character in BYTE_OF for character in token):
            pieces.append(bytes(BYTE_OF[character] for character in token))
        elif index in added:
            pieces.append(token.encode())
        else:
            raise ValueError(f"token {token!r} (id {index}) is not byte-level BPE; only such tokenizers are supported")
    return pieces


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
