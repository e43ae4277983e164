"""What every command shares: the application, its options, exit codes, and how a run is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xai.display import err

if TYPE_CHECKING:
    from xai.schema import Mode

DONE, DONE_WITH_FAILURES, NOTHING_DONE, INTERRUPTED = 0, 1, 2, 130
SAMPLES = "samples"
"""The dataset name that stands for the memes that ship with the package."""

app = typer.Typer(
    name="xai",
    help="Explain what a vision-language model read when it labelled a meme.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class ModeName(StrEnum):
    """What the model sees; a class, since an option that may be repeated takes no `Literal`."""

    TEXT = "text"
    IMAGE = "image"
    BOTH = "image+text"
    WITH_POST = "image+text+post"

    @property
    def mode(self) -> Mode:
        """The mode of that name."""
        mode: Mode = self.value
        return mode


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder made by `xai explain`.")]
DatasetArgument = Annotated[str, typer.Argument(help="JSONL, CSV, Parquet, a folder of pictures, or 'samples'.")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …; CUDA if there is one by default.")]
DtypeOption = Annotated[str | None, typer.Option(help="float32, bfloat16, …; float32 on CPU by default.")]
ImagesOption = Annotated[Path | None, typer.Option(help="Folder of the pictures, if not the dataset's.")]


def dataset_path(name: str) -> Path:
    """The dataset of that name: the memes that ship for 'samples', unless there is a file of this name."""
    if name == SAMPLES and not Path(name).exists():
        from xai.planted import SAMPLES as FOLDER

        return FOLDER
    return Path(name)


@contextmanager
def resumable() -> Iterator[None]:
    """Say after an interrupt that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        err.print("xai: stopped; the same command goes on where it was", highlight=False)
        raise typer.Exit(INTERRUPTED) from None
