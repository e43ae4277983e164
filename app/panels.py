"""Opens annotation panels for the pages on which people decide: records, read anew when something was written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xai.annotation.folder import Item, Panel
from xai.app.paths import picture_folder, resolved_picture
from xai.store import run_names


class OpenedPanel:
    """A panel under the name by which URLs call it.

    Args:
        images: folders of the pictures, instead of those that the panel names.
    """

    def __init__(self, name: str, path: Path, images: Sequence[Path] = ()) -> None:
        self.name = name
        self.panel = Panel(path)
        self._read: tuple[object, list[Item]] | None = None
        self._moved = bool(images)
        self.pictures = tuple(images) or self._recorded_folders()

    def items(self) -> list[Item]:
        """Every record as the folder has it now."""
        state = self.panel.state_of_files()
        if self._read is None or self._read[0] != state:
            self._read = state, self.panel.items()
        return self._read[1]

    def picture(self, item: Item) -> Path:
        """The file of a record's picture.

        Raises:
            PictureError: it is not there, or outside the folders that may be shown.
        """
        return resolved_picture(item.record["meme"].get("image"), self.pictures, moved=self._moved)

    def _recorded_folders(self) -> tuple[Path, ...]:
        memes = [item.record["meme"] for item in self.items() if item.record["meme"]]
        found = picture_folder([meme["image"] for meme in memes if "image" in meme])
        return () if found is None else (found,)


def open_panels(paths: Sequence[Path], images: Sequence[Path] = ()) -> dict[str, OpenedPanel]:
    """Panels by the names that tell them apart.

    Raises:
        PanelError: a folder is no panel.
    """
    names = run_names([Path(path) for path in paths])
    return {name: OpenedPanel(name, path, images) for name, path in zip(names, paths, strict=True)}
