"""Measurements beside their peers, in the same run. They assert nothing: a figure alone means little on another
machine, a ratio more.

    python -m tests.bench [NAME ...]
"""
