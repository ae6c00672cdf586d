"""Files, tensors on disk, and where a result comes from."""
