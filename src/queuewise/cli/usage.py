"""Help and errors of a command's arguments in our words: an error is one line with a hint, help has no None.

tyro reports rejected arguments through a private hook, and makes help of private classes, which is why pyproject.toml bounds its version.
Only this module uses them. No text of tyro or pydantic reaches a user.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tyro
from tyro import _errors as rejections
from tyro import _fields as fields

from queuewise.errors import InputError, did_you_mean, nearest

_OUT_OF_RANGE = re.compile(r"validation errors? for \w+\n(?P<key>\S+)\n +(?P<expected>.+?) \[type=.*input_value=(?P<value>.+?), input_")
_VALUE = re.compile(r"\['?(.*?)'?\]|: '(.*)'$")


@contextmanager
def usage_errors(command: Any, prog: str, arguments: Sequence[str]) -> Iterator[None]:
    """Raise an InputError for arguments that tyro rejects. `command` is a dataclass or a union of subcommands."""
    subcommands = subcommand_classes(command)
    chosen = arguments[0] if arguments and arguments[0] in subcommands else None
    if chosen:
        command, prog, subcommands = subcommands[chosen], f"{prog} {chosen}", {}

    def reject(event: rejections.ParseErrorEvent) -> None:
        raise _explain(event, command, prog, list(subcommands))

    with rejections.on_parse_error(reject), _plain_help():
        try:
            yield
        except ValueError as error:  # of a settings class whose fields have no prefix: tyro passes it on
            if refused := _OUT_OF_RANGE.search(str(error)):
                raise _out_of_range(refused, f"see {prog} --help") from None
            raise


@contextmanager
def _plain_help() -> Iterator[None]:
    """Help texts are joined to one paragraph each, a default that says nothing is left out, and None is no value to type."""
    real = fields.FieldDefinition.make

    def make(*arguments: Any, **named: Any) -> Any:
        field = real(*arguments, **named)
        hint = None if tyro.conf.UseAppendAction in field.markers else _default_in_words
        conf = dataclasses.replace(field.argconf, help_behavior_hint=field.argconf.help_behavior_hint or hint)
        conf = dataclasses.replace(conf, metavar=conf.metavar or _metavar_without_none(field.type_stripped))
        return dataclasses.replace(field, argconf=conf, helptext=lambda: _one_paragraph(field.helptext))

    fields.FieldDefinition.make = staticmethod(make)  # type: ignore[method-assign]
    try:
        yield
    finally:
        fields.FieldDefinition.make = staticmethod(real)  # type: ignore[method-assign]


def _default_in_words(label: str) -> str:
    return "" if label in ("", "None", "False") else f"(default: {label})"


def _one_paragraph(text: str | Callable[[], str | None] | None) -> str | None:
    found = text() if callable(text) else text
    return found and " ".join(found.split())


def _metavar_without_none(kind: Any) -> str | None:
    """STR instead of {None}|STR; None if tyro's own is right."""
    members = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else ()
    others = [member for member in members if member is not type(None)]
    if len(others) != 1 or len(members) != 2:
        return None
    if typing.get_origin(others[0]) is typing.Literal:
        return f"{{{','.join(map(str, typing.get_args(others[0])))}}}"
    if typing.get_origin(others[0]) is tuple:
        return "STR …"
    return "{True,False}" if others[0] is bool else others[0].__name__.upper() if others[0] in (str, int, float) else None


def _explain(event: rejections.ParseErrorEvent, command: Any, prog: str, subcommands: list[str]) -> InputError:
    see_help = f"see {prog} --help"
    if isinstance(event, rejections.MissingArgs) and not event.unrecognized_tokens:
        missing = [_invocation(argument.arg) for argument in event.missing_arguments]
        return InputError(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing", hint=see_help)
    if isinstance(event, rejections.MissingArgs):
        missing = [_invocation(argument.arg).partition(" ")[0] for argument in event.missing_arguments]
        return _unrecognized(event.unrecognized_tokens[0], command, prog, subcommands, missing)
    if isinstance(event, rejections.UnrecognizedArgs):
        return _unrecognized(event.tokens[0], command, prog, subcommands)
    if isinstance(event, rejections.MissingSubcommand):
        return InputError(f"{prog} needs a subcommand", hint=f"one of {', '.join(subcommands)}; {see_help}")
    if isinstance(event, rejections.BadValue):
        return InputError(f"{event.argument.display_name()} needs a value", hint=see_help)
    if isinstance(event, rejections.InvalidChoice):
        declared = str(event.argument.lowered.metavar)
        choices = sorted((choice for choice in event.choices if choice != str(None)), key=declared.find)  # tyro's have any order
        hint = f"{did_you_mean(event.value, choices)}one of {', '.join(choices)}"
        return InputError(f"{event.argument.display_name()} cannot be {event.value!r}", hint=hint)
    if isinstance(event, rejections.InstantiationFailure):
        return _bad_value(event, see_help)
    return InputError("these arguments cannot be used together", hint=see_help)


def _unrecognized(token: str, command: Any, prog: str, subcommands: list[str], missing: Sequence[str] = ()) -> InputError:
    if token.startswith("-"):
        option = token.partition("=")[0]
        near = nearest(option.lstrip("-"), option_names(command), least=0.5)
        return InputError(f"{prog} has no option {option}", hint=f"{f'did you mean --{near}? ' if near else ''}see {prog} --help")
    if subcommands:
        hint = f"{did_you_mean(token, subcommands)}one of {', '.join(subcommands)}"
        return InputError(f"{prog} has no subcommand {token!r}", hint=hint)
    wanted = "options start with --"
    if meant := "--workload" if "workload" in option_names(command) else missing[0] if len(missing) == 1 else "":
        wanted = f"write {meant} {token}"
    return InputError(f"unexpected argument {token!r}", hint=f"{wanted}; see {prog} --help")


def _bad_value(event: rejections.InstantiationFailure, hint: str) -> InputError:
    if refused := _OUT_OF_RANGE.search(event.message):  # raised by a settings class
        return _out_of_range(refused, hint)
    name = event.argument.display_name() if event.argument is not None else "an argument"
    expected = "a whole number" if "int" in event.message else "a number" if "float" in event.message else ""
    value = _VALUE.search(event.message.splitlines()[0])
    if not (expected and value):
        return InputError(f"{name}: the value cannot be used", hint=hint)
    return InputError(f"{name} {next(text for text in value.groups() if text is not None)!r} is not {expected}", hint=hint)


def _out_of_range(refused: re.Match[str], hint: str) -> InputError:
    from queuewise.config import in_plain_words

    return InputError(f"{refused['key']} = {refused['value']}: {in_plain_words(refused['expected'])}", hint=hint)


def _invocation(argument: Any) -> str:
    """--jobs N"""
    name, metavar = argument.display_name(), argument.lowered.metavar
    return f"{name} {metavar}" if name.startswith("-") and metavar else str(metavar or name)


def subcommand_classes(command: Any) -> dict[str, Any]:
    """The classes of a union of subcommands by name; empty for a command without subcommands."""
    return {config.name: member.__origin__ for member in typing.get_args(command) for config in _markers(member) if hasattr(config, "name")}


def option_names(command: Any) -> Iterator[str]:
    """Names of a command's options, without dashes. Options of settings below settings begin with the name of these, as ppo.gamma does."""
    is_settings = hasattr(command, "model_fields")
    if not (is_settings or dataclasses.is_dataclass(command)):
        return
    for name, hint in typing.get_type_hints(command, include_extras=True).items():
        inner, markers = typing.get_args(hint)[0] if _markers(hint) else hint, _markers(hint)
        if hasattr(inner, "model_fields"):
            yield from (f"{name}.{option}" if is_settings else option for option in option_names(inner))
        elif dataclasses.is_dataclass(inner):
            yield from option_names(inner)
        elif not {tyro.conf.Positional, tyro.conf.Suppress, typing.ClassVar} & {*markers, typing.get_origin(hint)}:
            yield name.replace("_", "-")


def _markers(hint: Any) -> tuple[Any, ...]:
    return getattr(hint, "__metadata__", ())
