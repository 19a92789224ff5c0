"""Policies on live clusters: in process, as a service, and beside Slurm or LSF (docs/live.md)."""
