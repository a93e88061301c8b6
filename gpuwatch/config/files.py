"""The files of the configuration: which they are, and whether a root daemon may believe them."""

from __future__ import annotations

import os
import stat
from typing import Optional

from gpuwatch.config.document import MAX_BYTES
from gpuwatch.config.report import Place, Report

MAX_FILES = 500


def read_file(path: str, report: Report) -> Optional[bytes]:
    """The bytes of a file, at most one more than MAX_BYTES; None after a problem.

    Refuses what is no regular file (a FIFO would hang the daemon) and what every user may write.
    """
    place = Place(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        report.error(place, "", "there is no such file")
        return None
    except OSError as error:
        report.error(place, "", f"can't be read: {(error.strerror or 'error').lower()}")
        return None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            report.error(place, "", "is not a regular file")
        elif mode & stat.S_IWOTH:
            report.error(place, "", "every user may write it; gpuwatch runs as root and won't believe it (chmod o-w)")
        else:
            return _read(descriptor)
    except OSError as error:
        report.error(place, "", f"can't be read: {(error.strerror or 'error').lower()}")
    finally:
        os.close(descriptor)
    return None


def _read(descriptor: int) -> bytes:
    data = b""
    while len(data) <= MAX_BYTES:
        more = os.read(descriptor, MAX_BYTES + 1 - len(data))
        if not more:
            break
        data += more
    return data


def drop_ins(directory: str, report: Report) -> tuple[str, ...]:
    """The *.yaml files of conf.d by name; none when there is no such directory.

    Hidden files, editors' backups and package managers' leftovers are passed over in silence; a
    *.yml is told about, since whoever wrote it believes that it counts.
    """
    place = Place(directory)
    try:
        names = sorted(os.listdir(directory))
        facts = os.stat(directory)
    except FileNotFoundError:
        return ()
    except OSError as error:
        report.error(place, "", f"can't be read: {(error.strerror or 'error').lower()}")
        return ()
    if facts.st_mode & stat.S_IWOTH:
        report.error(place, "", "every user may add files; gpuwatch runs as root and won't believe them (chmod o-w)")
        return ()
    for name in names:
        if name.endswith(".yml") and not name.startswith("."):
            report.warn(Place(os.path.join(directory, name)), "", "is not read; the name must end in .yaml")
    found = [name for name in names if name.endswith(".yaml") and not name.startswith(".")]
    if len(found) > MAX_FILES:
        report.error(place, "", f"holds more than {MAX_FILES} files")
    return tuple(os.path.join(directory, name) for name in found[:MAX_FILES])
