"""The independent reference simulator: docs/simulator.md written down for clarity, with SimPy as its clock.

It shares no code with the engine (`queuewise.sim`, `queuewise.policies`): only the input tables are common. Nothing here
is fast, nothing is clever; where a sentence of the normative page can be followed literally, it is.
"""

from reference.result import Result
from reference.simulator import simulate

__all__ = ["Result", "simulate"]
