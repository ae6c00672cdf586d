"""`carso reproduce`: the tables of the paper, measured here, with the paper's figures beside.

Data flow one way: `plan` says what each table needs, `jobs` what of it has to be made and at what
cost, `run_jobs` makes it, `render` writes the tables of what is there. Nothing is imported here, so
that who renders does not load what trains.
"""
