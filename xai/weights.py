"""Whether the weights of a model folder are all there: transformers draws at random what a file does not bring."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from safetensors import SafetensorError, safe_open

from xai.model_files import INDEX, weight_names

_REMEDY = "download the model again, or copy the file from where it is whole"
_NAMED = 3


class WeightsError(ValueError):
    """Weights are missing or damaged; the message names the file and says what to do."""


def check_weight_files(folder: Path) -> None:
    """Opens every safetensors file of a model folder, of which the header alone is read; other folders pass.

    Raises:
        WeightsError: a file that the index names is missing, or one is cut short or damaged; the message names it.
    """
    for name in _weight_files(folder):
        file = folder / name
        if not file.is_file():
            raise WeightsError(f"the weights are not complete: {name!r} is missing; {_REMEDY}")
        try:
            with safe_open(file, framework="pt"):
                pass
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"the weights in {name!r} cannot be read ({error}); {_REMEDY}") from None


def refuse_drawn_weights(missing: Collection[str]) -> None:
    """Refuses a model of which no file had some weights, so that they were drawn at random.

    Raises:
        WeightsError: there are such weights; the message names the first of them.
    """
    if missing:
        names = ", ".join(sorted(missing)[:_NAMED])
        more = ", …" if len(missing) > _NAMED else ""
        raise WeightsError(
            f"the weights are not complete: no file has {names}{more} ({len(missing)} in all); {_REMEDY}"
        )


def _weight_files(folder: Path) -> list[str]:
    names = weight_names(folder)
    if not names and (folder / INDEX).is_file():
        raise WeightsError(f"{INDEX!r} cannot be read; {_REMEDY}")
    return names
