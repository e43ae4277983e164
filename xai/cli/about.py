"""What is installed and what there is: `xai doctor`, `methods`, `tasks`, `models`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xai.cli.common import NOTHING_DONE, DeviceOption, DtypeOption, JsonOption, app
from xai.display import emit, err, print_diagnosis, print_environment, print_frame, print_json

if TYPE_CHECKING:
    from xai.attribution.methods import Method


@app.command()
def doctor(
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="'planted', a folder, or a hub id.")] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Versions, devices and OCR; of a model what is read of its files, every module's rule, and the self-check."""
    from xai.doctor import devices, diagnose, ocr_engines, versions

    environment: dict[str, Any] = {"versions": versions(), "devices": devices(), "ocr": ocr_engines()}
    if not as_json:
        print_environment(environment)
    diagnosis = None if model is None else diagnose(model, device, dtype)
    if as_json:
        print_json(environment | ({} if diagnosis is None else {"model": diagnosis.report()}))
    elif diagnosis is not None:
        print_diagnosis(diagnosis)
    if diagnosis is not None and diagnosis.problem:
        reason = f"xai: {model} cannot be explained: {diagnosis.problem}"
        err.print(reason, style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(NOTHING_DONE)


@app.command("methods")
def list_methods(as_json: JsonOption = False) -> None:
    """The attribution methods: what each needs, its baseline, its sign, where it comes from, and its options."""
    import pandas as pd

    from xai.attribution.methods import methods

    options = {m.name: _options(m) for m in methods()}
    rows = [
        {
            "name": m.name,
            "needs": ", ".join(sorted(m.needs)),
            "baseline": m.baseline,
            "sign": m.sign,
            "source": m.source,
            "description": m.description,
        }
        for m in methods()
    ]
    if as_json:
        print_json([row | {"options": options[row["name"]]} for row in rows])
        return
    print_frame("Attribution methods", pd.DataFrame(rows))
    listed = [
        {"method": name, "option": one["name"], "values": one["values"], "default": _shown(one["default"])}
        for name, of_method in options.items()
        for one in of_method
    ]
    print_frame("Options: xai explain … --option NAME=VALUE", pd.DataFrame(listed))


def _options(method: Method) -> list[dict[str, Any]]:
    defaults = method.complete({})
    return [{"name": o.name, "values": o.values, "default": defaults[o.name]} for o in method.options]


@app.command("tasks")
def list_tasks(as_json: JsonOption = False) -> None:
    """The tasks that ship."""
    import pandas as pd

    from xai.tasks import load_stages, task_names

    tasks = [stage for name in task_names() for stage in load_stages(name)]
    rows = [{"name": t.name, "labels": len(t.labels), "prompts": ", ".join(t.prompts)} for t in tasks]
    emit("Tasks", pd.DataFrame(rows), as_json)


@app.command("models")
def list_models(as_json: JsonOption = False) -> None:
    """The model families that can be explained, and which of their classes get which rule."""
    import pandas as pd

    from xai.attribution.families import FAMILIES

    rows = [
        {
            "name": family.name,
            "model_types": ", ".join(sorted(family.model_types)),
            "reads": "text" if family.vision is None else "text, pictures",
            "deepstack": family.vision is not None and family.vision.deepstack_features is not None,
            "rules": "; ".join(f"{kind}: {', '.join(sorted(names))}" for kind, names in _own_rules(family.rules)),
        }
        for family in FAMILIES
    ]
    emit("Model families", pd.DataFrame(rows), as_json)


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _own_rules(rules: Any) -> list[tuple[str, Any]]:
    """The rules by class of a family; activations are the same for all."""
    return [(str(kind), names) for kind, names in rules.items() if str(kind) != "activation"]
