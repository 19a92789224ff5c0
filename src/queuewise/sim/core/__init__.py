"""The core of the engine: columns, events, free resources, the life of a job, and the main loop.

Read `state` first (the data), then `loop` (what happens at an instant), `lifecycle` (starts and ends of jobs) and
`engine` (`simulate`). `compilation`, `tables` and `table_types` hide the internals of Numba from all other modules.
"""
