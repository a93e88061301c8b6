"""Installing a package file in a container as an admin would."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.lab.nspawn import Container


def apt_install(container: Container, deb: Path) -> str:
    """`apt-get install ./FILE.deb` without a network (the root has all dependencies); what it said."""
    inside = f"/srv/{deb.name}"
    shutil.copyfile(deb, container.root / inside.lstrip("/"))
    done = container.run(
        "apt-get", "-q", "-y", "-o", "Dpkg::Options::=--force-confold", "install", inside, timeout_s=180
    )
    return done.stdout + done.stderr
