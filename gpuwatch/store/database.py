"""The one SQLite file: documents in tables, a sequence number, migrations.

Each table maps a key to a JSON document. SQL stays within SQLite 3.34 (RHEL 9): no RETURNING, no STRICT.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from gpuwatch.model.errors import StoreError

# One statement a table and purpose, written out: no SQL is ever put together from a name.
_SELECT = {
    "state": "SELECT key, document FROM state",
    "incidents": "SELECT key, document FROM incidents",
    "intents": "SELECT key, document FROM intents",
    "spool": "SELECT key, document FROM spool",
}
_PUT = {
    "state": "REPLACE INTO state (key, document) VALUES (?, ?)",
    "incidents": "REPLACE INTO incidents (key, document) VALUES (?, ?)",
    "intents": "REPLACE INTO intents (key, document) VALUES (?, ?)",
    "spool": "REPLACE INTO spool (key, document) VALUES (?, ?)",
}
_REMOVE = {
    "state": "DELETE FROM state WHERE key = ?",
    "incidents": "DELETE FROM incidents WHERE key = ?",
    "intents": "DELETE FROM intents WHERE key = ?",
    "spool": "DELETE FROM spool WHERE key = ?",
}
TABLES = tuple(_SELECT)
SCHEMA = 1


@dataclass(frozen=True)
class Write:
    """One document put, or removed where `document` is None."""

    table: str
    key: str
    document: Optional[Any]


@dataclass(frozen=True)
class Transaction:
    """What one cycle writes, all or nothing. `number` counts up by one; a number that the database
    has seen is not applied again, so a transaction whose outcome is unknown can be repeated."""

    number: int
    writes: tuple[Write, ...]


Documents = Mapping[str, Mapping[str, Any]]


class Database:
    """An open database. Every method raises StoreError."""

    def __init__(self, path: str, read_only: bool = False) -> None:
        self._path = path
        try:
            if read_only:
                self._connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=1.0)
                return
            self._connection = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise StoreError(f"{path}: {error}") from error
        try:
            os.chmod(path, 0o600)
            self._prepare()
        except (sqlite3.Error, OSError) as error:
            self._connection.close()
            raise StoreError(f"{path}: {error}") from error
        except StoreError:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        run = self._connection.execute
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=FULL")
        version = run("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA:
            raise StoreError(f"{self._path}: written by a newer gpuwatch (schema {version}, this one knows {SCHEMA})")
        run("BEGIN IMMEDIATE")
        for table in TABLES:
            run(f"CREATE TABLE IF NOT EXISTS {table} (key TEXT PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID")
        run(f"PRAGMA user_version={SCHEMA}")
        run("COMMIT")

    def number(self) -> int:
        """The number of the last transaction; 0 for a new database."""
        row = self._query("SELECT document FROM state WHERE key = 'transaction'")
        return int(json.loads(row[0][0])) if row else 0

    def read(self, tables: Iterable[str] = TABLES) -> Documents:
        """All documents of the tables."""
        return {table: {key: json.loads(document) for key, document in self._query(_SELECT[table])} for table in tables}

    def apply(self, transactions: Iterable[Transaction]) -> None:
        """Write in order, in one commit, and leave out what is there already."""
        try:
            run = self._connection.execute
            run("BEGIN IMMEDIATE")
            last = self.number()
            for transaction in transactions:
                if transaction.number <= last:
                    continue
                last = transaction.number
                for write in transaction.writes:
                    if write.document is None:
                        run(_REMOVE[write.table], (write.key,))
                    else:
                        document = json.dumps(write.document, ensure_ascii=False, separators=(",", ":"))
                        run(_PUT[write.table], (write.key, document))
            run(_PUT["state"], ("transaction", str(last)))
            run("COMMIT")
        except (sqlite3.Error, KeyError) as error:
            self._roll_back()
            raise StoreError(f"{self._path}: {error}") from error

    def close(self) -> None:
        """Close; what was committed is durable already."""
        try:
            self._connection.close()
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}") from error

    def _query(self, sql: str) -> list[Any]:
        try:
            return self._connection.execute(sql).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: {error}") from error

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # the connection is beyond use; the next attempt says so


def read_documents(path: str, tables: Iterable[str] = TABLES) -> Documents:
    """The documents of a database that another process may be writing. Raises StoreError."""
    database = Database(path, read_only=True)
    try:
        return database.read(tables)
    finally:
        database.close()
