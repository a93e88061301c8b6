"""Frozen value types shared by every layer. No I/O, no clock, no imports from the rest of gpuwatch."""
