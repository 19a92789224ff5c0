"""Broken inputs of every kind, made by seeded generators: logs, clusters, conditions, options, policies, run folders and models.

Each module makes the cases of its kind; `tests/fuzz/test_commands.py` runs all of them through the command line.
"""
