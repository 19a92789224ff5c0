"""Policies by name, and `simulate`, which replays a workload under one."""

from queuewise.policies.names import Policy, parse_policy, policy_names
from queuewise.policies.replay import simulate

__all__ = ["Policy", "parse_policy", "policy_names", "simulate"]
