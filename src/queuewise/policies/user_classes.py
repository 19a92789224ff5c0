"""Classes of a user's own: that they have what a policy needs, checked before a replay begins."""

from __future__ import annotations

import inspect

from queuewise.errors import InputError
from queuewise.policies.user_code import UserCode, find_user_code


def check_class(reference: str) -> UserCode:
    """Return the class that a reference names; raise an InputError if it lacks what a policy needs."""
    own = find_user_code(reference)
    if not callable(getattr(own.value, "decide", None)):
        raise InputError(f"{own.name} has no method decide", where=own.where, hint="add def decide(self, view); see docs/policies.md")
    needed = [
        p.name
        for p in inspect.signature(own.value).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed:
        raise InputError(
            f"{own.name} cannot be created without {', '.join(needed)}",
            where=own.where,
            hint="give all parameters of its __init__ defaults",
        )
    _check_method(own, "decide", "view")
    if hasattr(own.value, "reset"):
        _check_method(own, "reset", "cluster", "seed")
    return own


def _check_method(own: UserCode, name: str, *arguments: str) -> None:
    """Check that a method can be called with these arguments."""
    method = inspect.getattr_static(own.value, name)
    if hasattr(method, "__get__"):
        method = method.__get__(object(), own.value)  # as an instance sees it: without self
    try:
        inspect.signature(method).bind(*arguments)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{own.name}.{name} cannot be called with {' and '.join(arguments)}: {error}",
            where=own.where_of(method),
            hint=f"write def {name}(self, {', '.join(arguments)}); see docs/policies.md",
        ) from None
