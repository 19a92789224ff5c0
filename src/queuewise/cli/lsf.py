"""stub"""
LsfCommand = int
