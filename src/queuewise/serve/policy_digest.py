"""Which version of a policy it was: the digest of the file that it is read from."""

from __future__ import annotations

import hashlib
from pathlib import Path

from queuewise.policies.model_file import find_model
from queuewise.policies.names import MODEL, found_rule, parse_policy


def digest_of(policy: str) -> str | None:
    """Of the file of a rule, a trained network or the user's own code. None: the policy is the package's."""
    if policy.startswith(MODEL):
        path = found_rule(policy) or find_model(parse_policy(policy).model)
    elif own := parse_policy(policy).own:
        path = Path(own[0].reference.rpartition(":")[0]).expanduser()
    else:
        return None
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
