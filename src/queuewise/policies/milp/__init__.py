"""Placement by an exact solver (HiGHS): `@milp`. docs/placement.md states the model.

`terms` are what it minimises, `gang_model` turns node states and moves into an integer program, `integer_program` solves
one, and `placement_solver` is what the engine asks.
"""
