"""What the figures of a diagnosis mean, in sentences: one for the critic, and one for everything conspicuous, with something to try."""

from __future__ import annotations

from typing import Any

import numpy as np

WORTHLESS, GOOD = 0.1, 0.5  # explained variance of returns, below and from
BY_CHANCE, SETTLED = 0.9, 0.02  # share of the entropy there could be, above and below
OFTEN, NEARLY_ALWAYS, MOSTLY_FORCED, MANY_DEAD = 0.9, 0.95, 0.8, 0.5  # shares

Figures = dict[str, Any]


def verdict(value: Figures, actions: Figures, masks: Figures, units: Figures, gradient: Figures) -> list[str]:
    found = [_on_values(value["explained_variance"])]
    if not gradient["finite"]:
        found.append("Weights or gradients are no numbers: go back to an earlier checkpoint, with a smaller learning rate.")
    if masks["cut_episodes"]:
        found.append(f"{masks['cut_episodes']} episodes were cut off and are left out here: the policy is slow, or the horizon short.")
    entropy = actions["entropy_share"]  # None where scores are no logits
    if entropy is not None and entropy > BY_CHANCE:
        found.append(f"It chooses almost by chance ({entropy:.0%} of the entropy there could be): it has learnt little yet.")
    if entropy is not None and entropy < SETTLED:
        found.append(f"It is settled ({entropy:.1%} of the entropy there could be): more training will change little.")
    if actions["waits"] > OFTEN:
        found.append(f"It waits in {actions['waits']:.0%} of the cases where it need not: look at the reward.")
    for what in ("slots", "hosts"):
        counts = np.array(actions[what] or [0])
        if counts.max() > NEARLY_ALWAYS * max(counts.sum(), 1):
            found.append(f"Of the {what} it takes number {counts.argmax()} nearly always: a fixed order would do the same.")
    if masks["forced_share"] > MOSTLY_FORCED:
        found.append(f"{masks['forced_share']:.0%} of its steps leave no choice: set task.skip_forced, or raise the load.")
    if units["dead_share"] > MANY_DEAD:
        found.append(f"{units['dead_share']:.0%} of its units never act: use a smaller learning rate, or a narrower network.")
    if gradient["without"]:
        found.append(f"Nothing is learnt by {', '.join(gradient['without'][:3])}: their gradients are zero.")
    return found if len(found) > 1 else [*found, "Nothing else is conspicuous."]


def _on_values(explained: float | None) -> str:
    if explained is None:
        return "Its critic is not kept with it: nothing is known of its values."
    told = f"(explained variance {explained:.2f})"
    if explained < WORTHLESS:
        return f"Values say hardly anything about what follows {told}: advantages are mostly noise. Train longer, or raise value_weight."
    return f"Values tell {'well' if explained >= GOOD else 'some of'} what follows {told}."
