"""From transitions of incidents to messages that arrived."""
