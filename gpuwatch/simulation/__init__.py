"""A simulated host behind the protocols of system/: for the demo, for simulate, and for tests."""
