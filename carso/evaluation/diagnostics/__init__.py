"""Can a number be trusted? Each diagnosis says so in plain words, with its figures."""
