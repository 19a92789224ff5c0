# %% [markdown]
# # A first hour with Queuewise
# Open this file as a notebook (VS Code, or `jupytext --to ipynb examples/notebook.py`), or run it as a program.
# Every cell ends with what it shows.

# %% One call replays a workload under several policies. Names stand for everything.
from __future__ import annotations

import polars as pl

import queuewise

schedules = queuewise.simulate("bursty", "4x8:V100-16", ["fcfs", "fcfs+easy", "sjf+easy~3d"], jobs=600, seed=1)
print(schedules)

# %% A schedule is one row per job, as a Polars data frame (`.to_pandas()` makes it one of pandas, with `pip install pandas pyarrow`).
jobs = schedules["sjf+easy~3d"].to_frame()
print(jobs.select("job_id", "submit_s", "wait_s", "num_tasks", "estimate_s").sort("wait_s", descending=True).head(3))


# %% A policy of your own is a function of a job: the least goes first. It is compiled.
URGENCY = 3600.0


def patient(job, now):  # type: ignore[no-untyped-def]
    return job.estimate * job.width - URGENCY * (now - job.submit)


mine = queuewise.simulate("bursty", "4x8:V100-16", patient, jobs=600, seed=1)
print(mine)

# %% With backfill and a bound on waits it has a name, which every function and every command takes.
named = queuewise.name_policy(patient, "+easy~3d")
result = queuewise.evaluate("bursty", "4x8:V100-16", ["fcfs+easy", "sjf+easy", named], jobs=800, windows=4, window_jobs=200, seed=1)
print(result.to_frame().select("policy", "rank", "mean", "wait_s"))

# %% A workload is a data frame too: change it and replay it again.
workload = queuewise.load_workload("bursty", jobs=600, seed=1).workload
longer = queuewise.Workload.from_frame(workload.to_frame().with_columns(pl.col("runtime") * 1.5), name="longer jobs")
print(queuewise.simulate(longer, "4x8:V100-16", "sjf+easy", estimates="oracle"))
