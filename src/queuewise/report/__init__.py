"""Figures, tables and exports of the replays in a run folder."""
