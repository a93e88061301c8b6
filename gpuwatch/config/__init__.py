"""Text in; settings with file, line and column out; every problem at once."""
