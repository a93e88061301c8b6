"""Answers what is no answer."""

import sys

sys.stdin.readline()
print("Traceback (most recent call last):", flush=True)
sys.stdin.read()
