"""Who wins, per image, and whether the answer can be trusted."""
