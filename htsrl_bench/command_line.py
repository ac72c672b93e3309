"""Command lines that repeat what was measured; they hold no path of the machine they were run on."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

from htsrl.config.command_line import flags


def bench_command(name: str, table: Any) -> str:
    """The `htsrl bench` that fills this table; where its files lie is left out."""
    folders = [field.name for field in dataclasses.fields(table) if isinstance(getattr(table, field.name), Path)]
    return shlex.join(["htsrl", "bench", name, *flags(table, type(table)(), leave_out=folders)])
