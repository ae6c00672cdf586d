"""`carso reproduce`: the tables of the paper, measured here, with the paper's figures beside."""

from carso.reproduction.paper_tables import TABLES, runs_needed
from carso.reproduction.plan import Scale, read_scale, scales
from carso.reproduction.sheet import Reproduced
from carso.reproduction.workshop import Workshop

__all__ = ["TABLES", "Reproduced", "Scale", "Workshop", "read_scale", "runs_needed", "scales"]
