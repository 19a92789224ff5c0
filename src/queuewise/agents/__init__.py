"""Learned policies: networks, PPO, D3QN and SAC, and training that resumes bit for bit.

Importing this package does not import torch.
"""
