"""Learning policies: networks, PPO and its kin, training that resumes to the bit. Importing this package imports no torch."""
