"""The paper's purifier: a conditional variational autoencoder."""
