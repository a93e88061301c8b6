"""Hold files below /run/gpuwatch/hold: while one is there, systemd does not start the unit that it is named after."""

from __future__ import annotations

import contextlib
import os


class HoldFiles:
    """Implements protocols.Holds."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def path(self, unit: str) -> str:
        """See protocols.Holds."""
        if "/" in unit or unit in ("", ".", ".."):
            raise ValueError(f"{unit!r} is no unit name")
        return os.path.join(self._directory, unit)

    def held(self) -> frozenset[str]:
        """See protocols.Holds."""
        try:
            return frozenset(os.listdir(self._directory))
        except FileNotFoundError:
            return frozenset()

    def hold(self, unit: str, why: str) -> None:
        """See protocols.Holds."""
        os.makedirs(self._directory, mode=0o755, exist_ok=True)
        path = self.path(unit)
        with contextlib.suppress(FileExistsError), open(path, "x", encoding="utf-8") as file:
            file.write(why + "\n")

    def release(self, unit: str) -> None:
        """See protocols.Holds."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(unit))
