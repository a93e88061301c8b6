"""The composition root, the cycle, the loop, the control socket."""
