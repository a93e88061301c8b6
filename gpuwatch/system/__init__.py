"""The only place that touches the operating system. Everything above sees the protocols in protocols.py."""
