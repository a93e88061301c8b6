"""What tests need of a machine: roots, a booted systemd, kernel lines."""
