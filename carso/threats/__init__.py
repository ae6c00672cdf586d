"""What an attacker may do to an image."""
