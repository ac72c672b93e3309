"""The reference pages of settings and metrics, made from where they are declared: `python -m htsrl.cli.reference`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from htsrl.config import Experiment, Network, Placement
from htsrl.config.algorithm_settings import CommonSettings, own_settings
from htsrl.metrics.names import METRICS

MADE_BY = "<!-- made by `make reference` -->"
FLAGS = {"backend": "--placement", "imports": "--import", "env": "ENV_ID", "env_args": "--env-arg KEY=VALUE"}
"""Settings whose flag is not their name."""
SECTIONS: Mapping[str, type] = {
    "Experiment": Experiment,
    **{cls.__name__: cls for cls in own_settings().values()},
    "Network": Network,
    "Placement": Placement,
}
INTRODUCTION = """\
# Settings

Every setting with its default. A setting is a field of a dataclass in Python (`htsrl.Experiment`,
`htsrl.PPO` ...), a flag of `htsrl train`, and an entry of `config.json`. `htsrl train ENV_ID --help`
lists them with the values that the environment's preset gives them. An algorithm of your own has
the settings of its `Settings` ([extending](../extending.md)).
"""
COMMON = """\
## What the runtime reads of an algorithm's settings

An algorithm without a setting of such a name gets the default.

| name | default |
| --- | --- |
"""
METRICS_INTRODUCTION = """\
# Metrics

Every metric that a run writes to `metrics.jsonl` and TensorBoard, by name. A line of
`metrics.jsonl` is a JSON object with `step`, the environment steps so far, and these; what is not
finite is `null`. An observer gets those of every update in `UpdateEvent.metrics`, without `time/`,
`wait/` and `cpu/`. What an update reports is a mean over its optimizer steps.
"""


def settings_page() -> str:
    parts = [MADE_BY, INTRODUCTION]
    for title, cls in SECTIONS.items():
        hints = typing.get_type_hints(cls)
        rows = "".join(
            f"| `{field.name}` | `{_flag(field.name, hints[field.name])}` | {_default(field)} | {doc} |\n"
            for field, doc in documented_fields(cls)
        )
        doc = inspect.cleandoc(cls.__doc__ or "")
        parts.append(f"## {title}\n\n{doc}\n\n| name | flag | default | meaning |\n| --- | --- | --- | --- |\n{rows}")
    common = "".join(f"| `{field.name}` | {_default(field)} |\n" for field in dataclasses.fields(CommonSettings))
    return "\n".join([*parts, COMMON + common])


def metrics_page() -> str:
    parts = [MADE_BY, METRICS_INTRODUCTION]
    for title, metrics in METRICS.items():
        rows = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in metrics.items())
        parts.append(f"## {title}\n\n| name | meaning |\n| --- | --- |\n{rows}")
    return "\n".join(parts)


PAGES = {"settings.md": settings_page, "metrics.md": metrics_page}


def documented_fields(cls: type) -> Iterator[tuple[dataclasses.Field[Any], str]]:
    """The fields of a dataclass with the docstrings below them, on one line; sections within it are left out."""
    docs = _docstrings(cls)
    for field in dataclasses.fields(cls):
        if field.name not in ("algorithm", "network"):
            yield field, " ".join(docs[field.name].split()).replace("|", "\\|")


def _docstrings(cls: type) -> dict[str, str]:
    docs: dict[str, str] = {}
    for base in cls.__bases__:
        docs |= _docstrings(base) if dataclasses.is_dataclass(base) else {}
    (body,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(body, ast.ClassDef)
    for statement, following in zip(body.body, body.body[1:], strict=False):
        match statement, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(doc))):
                docs[name] = doc
    return docs


def _flag(name: str, hint: Any) -> str:
    flag = FLAGS.get(name, "--" + name.replace("_", "-"))
    if hint is bool:
        return f"{flag}, --no-{flag.removeprefix('--')}"
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    choices = [str(x) for option in options if typing.get_origin(option) is Literal for x in typing.get_args(option)]
    return f"{flag} {{{','.join(choices)}}}" if choices else flag


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{field.default}`"
    return "required" if field.default_factory is dataclasses.MISSING else f"`{field.default_factory()}`"


def main(folder: Path = Path("docs/reference")) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
