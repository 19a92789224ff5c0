"""Whole policies in Python: slow, and free to do anything.

    queuewise simulate --workload bench --jobs 1000 --cluster 4x8:V100-16 --policy examples/policies/deciders.py:InOrder --policy fcfs

`decide` is called at every instant at which anything happened. It yields Start(job), which puts the job where the placement rule says
(`deciders.py:InOrder@spread`), or Start(job, {node: tasks}); Preempt(job) stops a running job. docs/policies.md says what a view shows.
"""

from queuewise.policies.interface import Preempt, Start


class InOrder:
    """First come, first served: `fcfs`."""

    def decide(self, view):
        for job in view.queue:
            if not view.fits(job):
                return
            yield Start(job)


class WhateverFits:
    """Whatever fits starts, in order of arrival: `fcfs+greedy`."""

    def decide(self, view):
        for job in view.queue:
            if view.fits(job):
                yield Start(job)


class EasyOnOneMachine:
    """EASY backfill where only the number of free cores counts (a flat machine): `fcfs+easy`."""

    def decide(self, view):
        queue = list(view.queue)
        while queue and view.fits(queue[0]):
            yield Start(queue.pop(0))
        if not queue:
            return
        head = queue.pop(0)
        shadow, spare = self.reserve(view, head)
        for job in queue:
            ends_in_time = view.now + job.estimate <= shadow
            if view.fits(job) and (ends_in_time or job.cpus <= spare):
                spare -= 0.0 if ends_in_time else job.cpus
                yield Start(job)

    @staticmethod
    def reserve(view, head):
        """When the head can start if jobs end as expected, and how many cores it then leaves."""
        free = sum(node.free_cores for node in view.nodes())
        ends = sorted({running.expected_end for running in view.running})
        for end in ends:
            then = free + sum(running.job.cpus for running in view.running if running.expected_end <= end)
            if then >= head.cpus:
                return end, then - head.cpus
        raise AssertionError("every job fits on the empty machine, or it would have been rejected")


class LowestNodesFirst:
    """Places jobs itself: as many tasks on the lowest nodes as they take. This is `fcfs@first`."""

    def reset(self, cluster, seed):
        self.num_nodes = cluster.num_nodes

    def decide(self, view):
        for job in view.queue:
            left, chosen = int(job.num_tasks), {}
            for node in view.nodes(job):
                tasks = min(left, int(node.slots))
                if tasks:
                    chosen[node.index] = tasks
                    left -= tasks
            if left:
                return
            yield Start(job, chosen)


class ShortestRemainingFirst:
    """The job with the least left runs (jobs of one GPU, one node, stops at no cost): `srtf`."""

    def decide(self, view):
        def left(run):
            return max(view.remaining(run.job) - (view.now - run.start), 0.0)

        for job in sorted(view.queue, key=lambda job: (view.remaining(job), job.index)):
            if not view.fits(job):
                last = max(view.running, key=lambda run: (left(run), run.job.index))
                if left(last) <= view.remaining(job):
                    return
                yield Preempt(last.job)
            yield Start(job)
