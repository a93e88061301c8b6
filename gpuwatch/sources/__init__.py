"""From what system/ reads to samples and events."""
