"""Policies that look ahead: `plan:POLICY`, `portfolio:A,B,C` and `recent:A,B,C`. docs/planning.md describes them.

`members` are the policies that are tried, `futures` says how long jobs may take and which may come, `rollouts` replays what is
known under a member, and `planned_replay` is the replay that asks them. `planned_policies` stands for the names.
"""
