"""Reads tasks from YAML: those that ship, and any other file; one with stages holds a task for each."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from xai.tasks.task import Pairs, Task

STAGE_FIELDS = ("labels", "pairs", "none_label", "prompts", "answer", "context")
"""What each stage has of its own; the rest of a task is said once for all of them."""


def load_task(name_or_path: str | Path) -> Task:
    """The task of that name (see `task_names`), or the one in that YAML file; of a task with stages, ``task/stage``.

    Raises:
        ValueError: there is no such task or file, the file is not a valid task, or the task has stages and none is
            named; the message names the field, or the stages.
    """
    name, stage = _split(name_or_path)
    tasks = _load(name)
    if stage is None:
        if len(tasks) > 1:
            raise ValueError(f"task {str(name)!r} has stages; name one of {', '.join(one.name for one in tasks)}")
        return tasks[0]
    for task in tasks:
        if task.name.rpartition("/")[2] == stage and len(tasks) > 1:
            return task
    there = ", ".join(one.name for one in tasks) if len(tasks) > 1 else "none"
    raise ValueError(f"task {str(name)!r} has no stage {stage!r}; it has {there}")


def load_stages(name_or_path: str | Path) -> tuple[Task, ...]:
    """The tasks of a name or file in the order in which they are asked: one, or one for each stage.

    Raises:
        ValueError: as for :func:`load_task`.
    """
    name, stage = _split(name_or_path)
    return _load(name) if stage is None else (load_task(name_or_path),)


def task_names() -> tuple[str, ...]:
    """The tasks that ship with the package."""
    files = (Path(entry.name) for entry in resources.files("xai.tasks").iterdir())
    return tuple(sorted(file.stem for file in files if file.suffix == ".yaml"))


def _split(name_or_path: str | Path) -> tuple[str | Path, str | None]:
    """A task's name or file, and the stage that is named behind it."""
    path = Path(name_or_path)
    if path.parent.suffix in {".yaml", ".yml"} or str(path.parent) in task_names():
        shipped = str(path.parent) in task_names() and isinstance(name_or_path, str)
        return (str(path.parent) if shipped else path.parent), path.name
    return name_or_path, None


def _load(name_or_path: str | Path) -> tuple[Task, ...]:
    if isinstance(name_or_path, str) and name_or_path in task_names():
        return _shipped(name_or_path)
    path = Path(name_or_path)
    if path.suffix not in {".yaml", ".yml"}:
        raise ValueError(
            f"there is no task {str(name_or_path)!r}; give one of {', '.join(task_names())} or a YAML file"
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"task file {path.name!r} cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise ValueError(f"task file {path.name!r} is not UTF-8; save it as UTF-8") from None
    return _parse(text, source=path.name)


@lru_cache
def _shipped(name: str) -> tuple[Task, ...]:
    text = resources.files("xai.tasks").joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return _parse(text, source=f"{name}.yaml")


def _parse(text: str, source: str) -> tuple[Task, ...]:
    try:
        content = yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"task file {source!r} is not valid YAML: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"task file {source!r} must be a mapping with the fields {', '.join(Task.model_fields)}")
    if "stages" not in content:
        return (_task(content, f"task file {source!r} is not a valid task"),)
    return _stages(content, source)


def _stages(content: Mapping[str, Any], source: str) -> tuple[Task, ...]:
    """One task for each stage: what is said once, and its own; its pairs are of the labels of an earlier one."""
    stages = content["stages"]
    if not isinstance(stages, dict) or len(stages) < 2 or not all(isinstance(one, dict) for one in stages.values()):
        raise ValueError(f"task file {source!r}: stages: give two or more, by name, each with its labels and prompts")
    shared = {name: value for name, value in content.items() if name != "stages"}
    own = sorted(set(shared) & set(STAGE_FIELDS))
    if own:
        raise ValueError(f"task file {source!r}: {own[0]} belongs to each of the stages, not beside them")
    tasks: dict[str, Task] = {}
    for stage, fields in stages.items():
        where = f"task file {source!r} is not a valid task: stage {stage!r}"
        named = {"context": [*tasks, *fields.get("context", ())], "name": f"{content.get('name')}/{stage}"}
        tasks[str(stage)] = _task({**shared, **_with_pairs(fields, tasks, where), **named}, where)
    return tuple(tasks.values())


def _with_pairs(fields: Mapping[str, Any], earlier: Mapping[str, Task], where: str) -> dict[str, Any]:
    """The fields of a stage with the labels that its pairs make."""
    pairs = fields.get("pairs")
    if not isinstance(pairs, dict):
        return dict(fields)
    if pairs.get("of") not in earlier or "labels" in fields:
        raise ValueError(f"{where}: pairs: of must name an earlier stage, and labels are made of them")
    try:
        made = Pairs.model_validate({**pairs, "first": earlier[pairs["of"]].labels})
    except ValidationError as error:
        raise ValueError(f"{where}: {_problems(error, 'pairs')}") from None
    return {**fields, "pairs": made, "labels": made.labels()}


def _task(content: Mapping[str, Any], where: str) -> Task:
    try:
        return Task.model_validate(content)
    except ValidationError as error:
        raise ValueError(f"{where}: {_problems(error)}") from None


def _problems(error: ValidationError, *inside: str) -> str:
    return "; ".join(_problem((*inside, *item["loc"]), item["msg"]) for item in error.errors())


def _problem(location: tuple[int | str, ...], message: str) -> str:
    place = ".".join(str(part) for part in location if part != "[key]")
    message = message.removeprefix("Value error, ")
    return f"{place}: {message}" if place else message


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key given twice, of which PyYAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                line = key.start_mark.line + 1
                raise yaml.YAMLError(f"the key {key.value!r} is given twice, the second time on line {line}")
            seen.add(key.value)
        return super().construct_mapping(node, deep)
