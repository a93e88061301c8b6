"""What gpuwatch does to a host, as state machines that survive a crash."""
