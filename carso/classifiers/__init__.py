"""Step 3: the frozen classifier, and the networks that are known by name."""
