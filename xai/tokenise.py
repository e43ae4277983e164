"""Tokenises a prompt whole, with offsets, and keeps text that spells a special token from becoming that token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from tokenizers import Tokenizer

from xai.attribution.align import whole_spans

Span = tuple[int, int]
Tokens = tuple[list[int], list[Span]]
"""Ids, and the characters that each stands for."""


def tokenise(tokenizer: Any, text: str, plain: Sequence[Span] = ()) -> Tokens:
    """Ids and offsets of a text.

    Args:
        tokenizer: a fast tokenizer of transformers.
        plain: each ``(start, end)`` is to be read as the characters that it has, whatever they spell.

    Raises:
        ValueError: the tokenizer makes special tokens of it in any case.
    """
    encoding = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    tokens = encoding["input_ids"], [(start, end) for start, end in encoding["offset_mapping"]]
    for start, end in plain:
        tokens = _without_commands(tokenizer, text, tokens, start, end)
    ids, offsets = tokens
    return ids, whole_spans(offsets, len(text))


def command_tokens(tokenizer: Any) -> dict[str, int]:
    """The tokens that a text can call by spelling them, with their ids.

    Runs of line breaks, which some vocabularies have among them, command nothing.
    """
    return {token: index for token, index in tokenizer.get_added_vocab().items() if token.strip()}


def _without_commands(tokenizer: Any, text: str, tokens: Tokens, start: int, end: int) -> Tokens:
    """The tokens with those that overlap ``[start, end)`` made anew where a special token is among them.

    What is made anew reaches from the last special token before that stretch to the first one behind it: the tokenizer
    itself takes a text apart at special tokens and reads what is between for itself.
    """
    ids, offsets = tokens
    commands = set(command_tokens(tokenizer).values())
    called = [place for place, token in enumerate(ids) if token in commands]
    if not any(offsets[place][0] < end and offsets[place][1] > start for place in called):
        return tokens
    first = max((place + 1 for place in called if offsets[place][1] <= start), default=0)
    behind = min((place for place in called if offsets[place][0] >= end), default=len(ids))
    left = offsets[first - 1][1] if first else 0
    right = offsets[behind][0] if behind < len(ids) else len(text)
    encoding = _plain(tokenizer).encode(text[left:right], add_special_tokens=False)
    # The stretch begins with words of the task, which reads the same with and without what follows it.
    if commands & set(encoding.ids) or encoding.ids[:1] != ids[first : first + 1]:
        raise ValueError("the text spells a special token, which the model would obey; put a space inside it")
    moved = [(left + from_, left + to) for from_, to in encoding.offsets]
    return [*ids[:first], *encoding.ids, *ids[behind:]], [*offsets[:first], *moved, *offsets[behind:]]


_PLAIN: WeakKeyDictionary[Any, Tokenizer] = WeakKeyDictionary()


def _plain(tokenizer: Any) -> Tokenizer:
    """The same tokenizer without the tokens that can be called; made once, since a vocabulary is large."""
    if tokenizer not in _PLAIN:
        content = json.loads(tokenizer.backend_tokenizer.to_str())
        content["added_tokens"] = [token for token in content["added_tokens"] if not token["content"].strip()]
        content |= {"truncation": None, "padding": None}
        _PLAIN[tokenizer] = Tokenizer.from_str(json.dumps(content))
    return _PLAIN[tokenizer]
