"""Which module stands for policies whose names begin with a prefix, such as `model:RUN`.

The modules may lie in layers above `policies`: the registry holds factories, which import them on first use.
`queuewise/__init__.py` registers those of this package, so every way into the package knows them (docs/decisions/0009).
What they must have is `queuewise.policies.interface.PrefixedPolicies`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_FACTORIES: dict[str, Callable[[], Any]] = {}


def register_prefix(prefix: str, factory: Callable[[], Any]) -> None:
    """Let what `factory` returns stand for all policies named `prefix:…`."""
    _FACTORIES[prefix] = factory


def has_prefix(policy: str) -> bool:
    return policy.partition(":")[0] in _FACTORIES


def policies_of(policy: str) -> Any:
    """What stands for policies with the prefix of this name."""
    return _FACTORIES[policy.partition(":")[0]]()
