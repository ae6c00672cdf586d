"""Certificates: a radius around an image within which no attack can change the answer."""
