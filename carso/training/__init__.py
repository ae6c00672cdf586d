"""Training of classifiers and purifiers, resumable bit for bit."""
