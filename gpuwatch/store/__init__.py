"""Durable state: one SQLite file, one writer, one host-wide lock."""
