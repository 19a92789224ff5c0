"""The core of the engine: columns, events, what is free, the life of a job, and the loop that joins all of it.

Read `state` first (what there is), then `loop` (what happens at an instant), `lifecycle` (starts and ends) and `engine` (`simulate`).
`compilation` and `tables` hide Numba's inner workings from everything else.
"""
