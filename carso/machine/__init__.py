"""What this machine can take, and how long things take on it."""
