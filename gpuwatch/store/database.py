"""The one SQLite file: documents in tables, a sequence number, migrations.

Each table maps a key to a JSON document. SQL stays within SQLite 3.34 (RHEL 9): no RETURNING, no STRICT.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Optional, Union
from urllib.parse import quote

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


# What SQLite says when the file itself is spoiled; everything else (full, locked, read-only, I/O) may pass.
_SPOILED_CODES = (11, 26)  # SQLITE_CORRUPT, SQLITE_NOTADB
_SPOILED_WORDS = ("malformed", "not a database")


class DamagedError(StoreError):
    """What is stored can't be used, and waiting does not help: not a database, or not documents of gpuwatch."""


class NewerError(StoreError):
    """A newer gpuwatch wrote it."""


@dataclass(frozen=True)
class Write:
    """One document put, or removed where `document` is None."""

    table: str
    key: str
    document: Optional[Any]


@dataclass(frozen=True)
class Encoded:
    """A Write as it is stored: `text` is JSON in ASCII, None removes."""

    table: str
    key: str
    text: Optional[str]


@dataclass(frozen=True)
class Transaction:
    """What one cycle writes, all or nothing. `number` counts up by one; a number that the database
    has seen is not applied again, so a transaction whose outcome is unknown can be repeated."""

    number: int
    writes: tuple[Union[Write, Encoded], ...]


Documents = Mapping[str, Mapping[str, Any]]


def encode_write(write: Union[Write, Encoded]) -> Encoded:
    """The form that is stored. Raises StoreError when there is none: it would fail at every try."""
    if isinstance(write, Encoded):
        return write
    try:
        write.key.encode()
        if write.table not in _PUT:
            raise ValueError("no such table")
        # ASCII: a lone surrogate (a name that was not UTF-8) is no valid text for SQLite, its escape is.
        text = None if write.document is None else json.dumps(write.document, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError, AttributeError) as error:
        raise StoreError(f"{write.table} {write.key!a} can't be stored: {error}") from error
    return Encoded(write.table, write.key, text)


class Database:
    """An open database. Every method raises StoreError, and DamagedError where the file is spoiled.

    Opening one whose schema is there already writes nothing, so that it works on a full disk. `immutable`
    (with `read_only`) reads the main file alone, without locks: the last resort on a read-only file system.
    """

    def __init__(self, path: str, read_only: bool = False, immutable: bool = False) -> None:
        self._path = path
        try:
            if read_only:
                how = "immutable=1" if immutable else "mode=ro"
                uri = f"file:{quote(os.path.abspath(path))}?{how}"
                self._connection = sqlite3.connect(uri, uri=True, timeout=1.0)
                return
            self._connection = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._failed(error) from error
        try:
            if stat.S_IMODE(os.stat(path).st_mode) != 0o600:
                os.chmod(path, 0o600)
            self._prepare()
        except (sqlite3.Error, OSError) as error:
            self._connection.close()
            raise self._failed(error) from error
        except StoreError:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        run = self._connection.execute
        version = run("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA:
            raise NewerError(f"{self._path}: written by a newer gpuwatch (schema {version}, this one knows {SCHEMA})")
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=FULL")
        there = {name for (name,) in run("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if version == SCHEMA and there.issuperset(TABLES):
            return
        run("BEGIN IMMEDIATE")
        for table in TABLES:
            run(f"CREATE TABLE IF NOT EXISTS {table} (key TEXT PRIMARY KEY, document TEXT NOT NULL) WITHOUT ROWID")
        run(f"PRAGMA user_version={SCHEMA}")
        run("COMMIT")

    def blank(self) -> bool:
        """True when nothing has ever been stored, not even the tables (a first start that could not write)."""
        return not self._query("SELECT 1 FROM sqlite_master")

    def number(self) -> int:
        """The number of the last transaction; 0 for a new database."""
        row = self._query("SELECT document FROM state WHERE key = 'transaction'")
        try:
            return int(json.loads(row[0][0])) if row else 0
        except (ValueError, TypeError, RecursionError) as error:
            raise DamagedError(f"{self._path}: the transaction number can't be read: {error}") from error

    def read(self, tables: Iterable[str] = TABLES) -> Documents:
        """All documents of the tables."""
        return {
            table: {key: self._load(table, key, document) for key, document in self._query(_SELECT[table])}
            for table in tables
        }

    def apply(self, transactions: Iterable[Transaction], new_above: Optional[int] = None) -> int:
        """Write in order, in one commit, and leave out what is there already. The database's number after it.

        `new_above`: what has a higher number than this is known to be new, whatever number the database has (it
        could not be read when the numbers were given).
        """
        try:
            run = self._connection.execute
            run("BEGIN IMMEDIATE")
            last = stored = self.number()
            for transaction in transactions:
                number = transaction.number
                if number <= stored and (new_above is None or number <= new_above):
                    continue
                last = max(last, number)
                for write in map(encode_write, transaction.writes):
                    if write.text is None:
                        run(_REMOVE[write.table], (write.key,))
                    else:
                        run(_PUT[write.table], (write.key, write.text))
            run(_PUT["state"], ("transaction", str(last)))
            run("COMMIT")
        except StoreError:
            self._roll_back()
            raise
        except Exception as error:  # of whatever kind: a transaction left open would make every later one fail
            self._roll_back()
            raise self._failed(error) from error
        return last

    def close(self) -> None:
        """Close; what was committed is durable already."""
        try:
            self._connection.close()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _query(self, sql: str) -> list[Any]:
        try:
            return self._connection.execute(sql).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _load(self, table: str, key: str, document: str) -> Any:
        try:
            return json.loads(document)
        except (ValueError, TypeError, RecursionError) as error:
            raise DamagedError(f"{self._path}: {table} {key!a} is not JSON: {error}") from error

    def _failed(self, error: Exception) -> StoreError:
        kind = DamagedError if _is_spoiled(error) else StoreError
        return kind(f"{self._path}: {getattr(error, 'strerror', None) or error}")

    def _roll_back(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # the connection is beyond use; the next attempt says so


def _is_spoiled(error: Exception) -> bool:
    """Before Python 3.11 an error has no code; these two are the class itself, not a subclass, with fixed words."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return (code & 0xFF) in _SPOILED_CODES
    return type(error) is sqlite3.DatabaseError and any(words in str(error) for words in _SPOILED_WORDS)


def read_documents(path: str, tables: Iterable[str] = TABLES) -> Documents:
    """The documents of a database that another process may be writing. Raises StoreError."""
    return read_numbered(path, tables)[1]


def read_numbered(path: str, tables: Iterable[str] = TABLES, immutable: bool = False) -> tuple[int, Documents]:
    """The same with the number of the last transaction. Raises StoreError."""
    database = Database(path, read_only=True, immutable=immutable)
    try:
        if database.blank():
            return 0, {table: {} for table in tables}
        # The number first: what is committed in between is read with a number that is too small, and what
        # waits in /run is then laid over it once more, which changes nothing.
        return database.number(), database.read(tables)
    finally:
        database.close()


def overlay(documents: Documents, transactions: Iterable[Transaction], above: int) -> Documents:
    """The documents with the transactions above that number laid over them."""
    merged = {table: dict(entries) for table, entries in documents.items()}
    for transaction in transactions:
        if transaction.number <= above:
            continue
        for write in map(encode_write, transaction.writes):
            if write.text is None:
                merged.setdefault(write.table, {}).pop(write.key, None)
            else:
                merged.setdefault(write.table, {})[write.key] = json.loads(write.text)
    return merged
