"""A child for JsonChild: echoes objects, and does what {"do": ...} says."""

from __future__ import annotations

import json
import os
import signal
import sys


def main() -> None:
    """Until standard input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("do") == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if message.get("do") == "exit":
            sys.exit(3)
        print(
            "nonsense" if message.get("do") == "babble" else json.dumps({**message, "argv": sys.argv[1:]}), flush=True
        )


if __name__ == "__main__":
    main()
