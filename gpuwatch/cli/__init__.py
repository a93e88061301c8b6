"""The gpuwatch command: one module a verb."""
