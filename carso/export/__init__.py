"""A defence as one file for other runtimes."""
