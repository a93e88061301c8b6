"""Ends as soon as it is asked something."""

import sys

sys.stdin.readline()
sys.exit(1)
