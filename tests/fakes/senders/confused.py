"""Answers questions that nobody asked, then the right one twice."""

import json
import sys

for line in sys.stdin:
    name = json.loads(line)["id"]
    for answer in ({}, {"id": 5}, {"id": "other", "ok": True}, {"id": name, "ok": True}, {"id": name, "ok": False}):
        print(json.dumps(answer), flush=True)
