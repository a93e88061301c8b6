"""The GPU driver, read in a child process that can be abandoned."""
