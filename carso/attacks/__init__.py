"""Attacks, each with one signature: a model, images, labels, a threat, a generator."""
