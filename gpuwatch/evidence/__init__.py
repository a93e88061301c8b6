"""What was seen, made durable before anything is touched."""
