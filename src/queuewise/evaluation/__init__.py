"""Evaluation of schedules: metrics, protocols, statistics, lower bounds, experiments, and their files."""
