"""No module of the package unpickles, evaluates text, starts a shell, or opens a way for code that comes with data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import xai.database

PROJECT = Path(__file__).parents[2]
MODULES = sorted(
    path for folder in ("xai", "attribution", "analysis", "app") for path in (PROJECT / folder).rglob("*.py")
)

FORBIDDEN_MODULES = {
    *("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "code", "pty", "telnetlib"),
    *("xml", "lxml", "requests", "urllib3", "httpx", "ftplib", "smtplib", "huggingface_hub"),
}
FORBIDDEN_CALLS = {
    *(
        "eval",
        "exec",
        "compile",
        "__import__",
        "os.system",
        "os.popen",
        "torch.load",
        "torch.jit.load",
        "torch.hub.load",
    ),
    *("np.load", "numpy.load", "pd.read_pickle", "pandas.read_pickle", "pd.read_html", "pd.eval", "spacy.load"),
    *("nltk.download", "nltk.data.load", "torch.save", "duckdb.connect", "urllib.request.urlopen"),
    *("subprocess.getoutput", "tempfile.mktemp", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all"),
}
FORBIDDEN_METHODS = {"to_pickle", "cache_data", "unsafe_load"}
ALLOWED = {("xai/database.py", "duckdb.connect")}


def named(node: ast.expr) -> str:
    """``a.b.c`` of a chain of attributes; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{named(node.value)}.{node.attr}"
    return ""


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == name), None)


def is_true(node: ast.expr | None) -> bool:
    return node is not None and not (isinstance(node, ast.Constant) and not node.value)


def problems(tree: ast.AST) -> Iterator[str]:
    """What is wrong with a module, as a line each."""
    safe_loaders = {"yaml.SafeLoader", "SafeLoader"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and safe_loaders & set(map(named, node.bases)):
            safe_loaders.add(node.name)
    for node in ast.walk(tree):
        for module in _imported(node):
            if module.partition(".")[0] in FORBIDDEN_MODULES:
                yield f"imports {module}"
        if isinstance(node, ast.Call):
            yield from _wrong(node, safe_loaders)
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "trust_remote_code" and is_true(value):
                    yield "trusts remote code"


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _wrong(call: ast.Call, safe_loaders: set[str]) -> Iterator[str]:
    name = named(call.func)
    if name in FORBIDDEN_CALLS or name.rpartition(".")[2] in FORBIDDEN_METHODS:
        yield f"calls {name}"
    for option in ("allow_pickle", "trust_remote_code", "shell", "persist"):
        if is_true(keyword(call, option)):
            yield f"calls {name} with {option}"
    loader = keyword(call, "Loader") or (call.args[1] if len(call.args) > 1 else None)
    if name == "yaml.load" and (loader is None or named(loader) not in safe_loaders):
        yield "calls yaml.load with a loader that makes objects"
    if name.rpartition(".")[2] == "Environment" and not is_true(keyword(call, "autoescape")):
        yield "makes templates that do not escape"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_a_module_has_no_call_that_could_run_what_it_reads(path: Path) -> None:
    name = path.relative_to(PROJECT).as_posix()
    found = list(problems(ast.parse(path.read_text(encoding="utf-8"))))
    assert [problem for problem in found if (name, problem.removeprefix("calls ")) not in ALLOWED] == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from joblib import load",
        "import xml.etree.ElementTree",
        "import torch; torch.load('a')",
        "eval('1')",
        "numpy.load('a', allow_pickle=flag)",
        "yaml.load(text)",
        "yaml.load(text, Loader=yaml.Loader)",
        "AutoModel.from_pretrained('a', trust_remote_code=True)",
        "options = {'trust_remote_code': True}",
        "subprocess.run('ls', shell=True)",
        "frame.to_pickle('a')",
        "jinja2.Environment(loader=loader)",
        "Environment(autoescape=False)",
        "duckdb.connect()",
        "@st.cache_data(persist='disk')\ndef f(): ...",
    ],
)
def test_the_search_finds_what_it_looks_for(line: str) -> None:
    assert list(problems(ast.parse(line)))


def test_the_search_lets_harmless_lines_pass() -> None:
    lines = "class Own(yaml.SafeLoader): ...\nyaml.load(text, Loader=Own)\nEnvironment(autoescape=True)\nmodel.eval()"
    assert list(problems(ast.parse(lines))) == []


def test_the_database_neither_fetches_nor_loads_extensions() -> None:
    import duckdb

    with xai.database.connect(threads=1) as database:
        settings = "current_setting('autoinstall_known_extensions'), current_setting('autoload_known_extensions')"
        assert database.execute(f"SELECT {settings}").fetchone() == (False, False)
        with pytest.raises(duckdb.Error, match="requires the extension httpfs"):
            database.execute("SELECT * FROM read_parquet('https://127.0.0.1:9/part.parquet')")
