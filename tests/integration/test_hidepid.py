"""/proc mounted with hidepid: what root still sees (its unit keeps CAP_SYS_PTRACE), and what others are told."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import TREE, refuse
from tests.lab.refusal import why_no_command, why_no_namespaces

LOOK = """
import sys
from gpuwatch.model.errors import SourceError
from gpuwatch.system.procfs import ProcFs
try:
    print(ProcFs(sys.argv[1]).look(1) is not None)
except SourceError as error:
    print(error)
"""


def look(place: str, hidepid: int, user: int) -> str:
    """What a look at PID 1, which is root's, gives."""
    drop = f"setpriv --reuid {user} --regid {user} --clear-groups" if user else ""
    script = f'mount -t proc -o hidepid={hidepid} proc "$1" && exec {drop} "$2" -c "$3" "$1"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", place, sys.executable, LOOK],
        capture_output=True, text=True, cwd=TREE, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.namespaces
@pytest.mark.parametrize(
    "hidepid, user, expected",
    [
        (0, 0, "True"),
        (1, 0, "True"),
        (2, 0, "True"),
        (0, 65534, "True"),
        (1, 65534, "can't look at process 1: Operation not permitted"),
    ],
)
def test_hidden_processes(hidepid: int, user: int, expected: str) -> None:
    refuse(why_no_namespaces() or why_no_command("unshare", "setpriv"))
    # Not below pytest's own directory, which others may not enter.
    assert look("/mnt", hidepid, user) == expected
