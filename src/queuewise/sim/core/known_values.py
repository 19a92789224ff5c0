"""Leaving out code that cannot run: branches on scalars of a table whose values are known when a kernel is compiled.

A kernel that gets a table of a variant type (`tables.table_reader`) is translated as if `w.policy.can_restart` were the
number that it always is there. Numba then removes the branches that are not taken before it looks at the types of what
is in them, so helpers that only they call are not compiled at all. That is where the time of compilation goes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from numba.core import consts, ir
from numba.core.analysis import dead_branch_prune
from numba.core.bytecode import ByteCode, FunctionIdentity
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.dispatcher import Dispatcher
from numba.core.interpreter import Interpreter
from numba.core.ir_utils import get_definition, guard

COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
LONGEST_QUESTION = 200  # bytes of code of a helper that may return a constant


@register_pass(mutates_CFG=False, analysis_only=False)
class KnownValuesPass(FunctionPass):
    """Replace scalars, comparisons with them and questions about them whose value follows from what is known."""

    _name = "known_values"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        if not any(getattr(argument, "known", None) for argument in state.args):
            return False
        _replace_known(state.func_ir, state.args, (_known_comparison, _known_answer, _known_scalar))
        return True


def _replace_known(func_ir: Any, arguments: Sequence[Any], finders: Sequence[Callable[..., int | None]]) -> None:
    for find in finders:
        for block in func_ir.blocks.values():
            for statement in block.body:
                if isinstance(statement, ir.Assign) and isinstance(statement.value, ir.Expr):
                    value = find(func_ir, arguments, statement.value)
                    if value is not None:
                        _assign(func_ir, statement, value)
    func_ir._consts = consts.ConstantInference(func_ir)


def _assign(func_ir: Any, statement: Any, value: int) -> None:
    definitions = func_ir._definitions[statement.target.name]
    place = definitions.index(statement.value)
    statement.value = definitions[place] = ir.Const(value, statement.loc)


def _values(func_ir: Any, arguments: Sequence[Any], expression: Any) -> frozenset[int] | None:
    """The values that `table.column.name` can have, None if nothing is known."""
    if getattr(expression, "op", None) != "getattr":
        return None
    column = guard(get_definition, func_ir, expression.value)
    if getattr(column, "op", None) != "getattr":
        return None
    known = getattr(_argument(func_ir, arguments, column.value), "known", {})
    values: frozenset[int] | None = known.get((column.attr, expression.attr))
    return values


def _argument(func_ir: Any, arguments: Sequence[Any], variable: Any) -> Any:
    """The type of an argument of the kernel, None for any other variable."""
    definition = guard(get_definition, func_ir, variable)
    return arguments[definition.index] if isinstance(definition, ir.Arg) else None


def _known_scalar(func_ir: Any, arguments: Sequence[Any], expression: Any) -> int | None:
    values = _values(func_ir, arguments, expression)
    return next(iter(values)) if values is not None and len(values) == 1 else None


def _known_comparison(func_ir: Any, arguments: Sequence[Any], expression: Any) -> bool | None:
    """The result of comparing a scalar with a constant, if it is the same for all its values."""
    if expression.op != "binop" or expression.fn not in COMPARISONS:
        return None
    values = _values(func_ir, arguments, guard(get_definition, func_ir, expression.lhs))
    other = _constant(func_ir, guard(get_definition, func_ir, expression.rhs))
    if values is None or other is None:
        return None
    results = {expression.fn(value, other) for value in values}
    return results.pop() if len(results) == 1 else None


def _known_answer(func_ir: Any, arguments: Sequence[Any], expression: Any) -> int | None:
    """What a helper returns if, for these tables, it returns one constant and does nothing else."""
    if expression.op != "call" or expression.kws or expression.vararg:
        return None
    helper = getattr(guard(get_definition, func_ir, expression.func), "value", None)
    tables = [_argument(func_ir, arguments, variable) for variable in expression.args]
    if not isinstance(helper, Dispatcher) or not any(getattr(table, "known", None) for table in tables):
        return None
    if len(helper.py_func.__code__.co_code) > LONGEST_QUESTION:
        return None
    identity = FunctionIdentity.from_function(helper.py_func)
    inner = Interpreter(identity).interpret(ByteCode(identity))
    _replace_known(inner, tables, (_known_comparison, _known_scalar))
    dead_branch_prune(inner, tables)
    statements = [statement for block in inner.blocks.values() for statement in block.body]
    returned = [statement.value for statement in statements if isinstance(statement, ir.Return)]
    if len(returned) != 1 or any(isinstance(statement, ir.SetItem | ir.SetAttr | ir.Branch) for statement in statements):
        return None
    if any(getattr(getattr(statement, "value", None), "op", "") == "call" for statement in statements):
        return None
    definition = guard(get_definition, inner, returned[0])
    if getattr(definition, "op", None) == "cast":
        definition = guard(get_definition, inner, definition.value)
    return _constant(inner, definition)


def _constant(func_ir: Any, definition: Any) -> int | None:
    """The number behind a literal, a global name, or a name in a module."""
    value = None
    if isinstance(definition, ir.Const | ir.Global | ir.FreeVar):
        value = definition.value
    elif getattr(definition, "op", None) == "getattr":
        module = guard(get_definition, func_ir, definition.value)
        if isinstance(module, ir.Global) and isinstance(module.value, ModuleType):
            value = getattr(module.value, definition.attr, None)
    return value if isinstance(value, int) else None
