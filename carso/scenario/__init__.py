"""Everything that decides a run, in one TOML file."""
