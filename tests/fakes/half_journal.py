"""A reader of the journal that ends in the middle of its first answer."""

from __future__ import annotations

import json
import sys

sys.stdin.readline()
asked = json.loads(sys.stdin.readline())["ask"]
row = ["cursor", 1, 1, "b" * 32, {"MESSAGE": "from an answer that never ended"}]
print(json.dumps({"ask": asked, "entries": [row]}), flush=True)
