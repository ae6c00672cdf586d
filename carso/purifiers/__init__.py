"""Step 2: from activations to candidate images. One protocol, a registry, a room for each kind."""
