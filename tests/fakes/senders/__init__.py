"""Senders that misbehave, to be run by the courier instead of the real one."""
