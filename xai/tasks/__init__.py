"""What a task is: its label tree, its prompts and its answer fields, read from one YAML file a task."""

from xai.tasks.files import load_stages, load_task, task_names
from xai.tasks.task import AnswerFields, Label, LabelField, Pairs, Prompts, Task

__all__ = [
    "AnswerFields",
    "Label",
    "LabelField",
    "Pairs",
    "Prompts",
    "Task",
    "load_stages",
    "load_task",
    "task_names",
]
