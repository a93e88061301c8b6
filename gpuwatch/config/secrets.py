"""Keys and passwords that were written into the configuration: refused, and never repeated."""

from __future__ import annotations

from gpuwatch.config.document import Node
from gpuwatch.config.report import Report, holds_secret, shown
from gpuwatch.config.table import join

_TEXT = (
    "holds a key or a password; the configuration holds none: put it into a systemd credential or a file with"
    " mode 0600 and write key: {credential: NAME} or key: {file: /PATH} (and renew it: others may have read it here)"
)


def refuse_secrets(node: Node, path: str, report: Report) -> None:
    """A problem for each text of the tree that carries a secret; nothing else is said of such a text."""
    if node.kind == "text" and holds_secret(node.text):
        report.settle(node.place, path, _TEXT)
    for number, item in enumerate(node.items):
        refuse_secrets(item, f"{path}[{number}]", report)
    for key, value in node.entries:
        refuse_secrets(key, path, report)
        refuse_secrets(value, join(path, shown(key.text)), report)
