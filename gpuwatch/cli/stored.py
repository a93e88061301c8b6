"""What is stored, for verbs that read without the daemon."""

from __future__ import annotations

import os
import sys

from gpuwatch.cli.output import safe
from gpuwatch.model.errors import StoreError
from gpuwatch.store.memory import Snapshot, from_documents
from gpuwatch.store.waiting import read_stored


def read_store(state_dir: str, run_dir: str) -> Snapshot:
    """What is stored, with what waits for the disk. Raises StoreError with a sentence for people."""
    path, waiting = os.path.join(state_dir, "state.db"), os.path.join(run_dir, "waiting.jsonl")
    if not os.access(state_dir, os.R_OK | os.X_OK):
        raise StoreError(
            f"{state_dir}: can't be read (only root may)"
            if os.path.exists(state_dir)
            else f"{state_dir}: nothing there; has gpuwatch run on this host?"
        )
    if not os.path.exists(path) and not os.path.exists(waiting):
        raise StoreError(f"{path}: nothing there; has gpuwatch run on this host?")
    documents, problem = read_stored(path, waiting, ("incidents", "intents", "spool", "state"))
    if problem:
        sys.stderr.write(f"gpuwatch: {safe(problem)}\n")
    return from_documents(documents)
