"""What this machine can take, how long things take on it, and how far they are."""
