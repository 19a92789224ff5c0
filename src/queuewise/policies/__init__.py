"""Policies by name, and `simulate`, which replays a workload under a policy."""

from queuewise.policies.compiled_decider import make_decider
from queuewise.policies.names import Policy, parse_policy, policy_names
from queuewise.policies.replaying import simulate

__all__ = ["Policy", "make_decider", "parse_policy", "policy_names", "simulate"]
