"""From schedules to numbers: metrics, protocols, statistics, bounds, experiments and the folders they are kept in."""
