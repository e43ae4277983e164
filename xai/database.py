"""DuckDB in memory, which reads files of this machine and neither fetches nor loads extensions."""

from __future__ import annotations

import duckdb


def connect(**config: str | int) -> duckdb.DuckDBPyConnection:
    """A database of its own; ``config`` as DuckDB names it.

    By itself DuckDB downloads an extension and loads it, as soon as the name of a file looks like an address.
    """
    never = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    return duckdb.connect(config={**config, **never})
