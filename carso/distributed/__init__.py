"""Many processes that compute what one would."""
