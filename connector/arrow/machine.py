"""Words and calls at bare addresses, for compiled functions: what the C structures of the client library need.

Addresses are plain int64 values, so that compiled code holds no pointer of this process and may be cached on disk.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .compile_cache import prepare

prepare()
_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def _load(word: Any, result: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], word.as_pointer()))

    return result(types.int64), codegen


@intrinsic
def load_i64(typing_context, address):
    """The 8 bytes at `address`."""
    return _load(_I64, types.int64)


@intrinsic
def load_i32(typing_context, address):
    """The 4 bytes at `address`, signed."""
    return _load(_I32, types.int32)


@intrinsic
def load_u32_unaligned(typing_context, address):
    """The 4 bytes at any `address`, in the machine's order."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], _I32.as_pointer()), align=1)

    return types.uint32(types.int64), codegen


@intrinsic
def load_u8(typing_context, address):
    """The byte at `address`."""
    return _load(_I8, types.uint8)


@intrinsic
def copy_bytes(typing_context, target, source, length):
    """memcpy; the ranges must not overlap."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, of = (builder.inttoptr(a, _I8.as_pointer()) for a in args[:2])
        cgutils.raw_memcpy(builder, to, of, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


def _caller(result: Any, arguments: int) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        c_result = context.get_value_type(signature.return_type) if result is not types.void else ir.VoidType()
        function_type = ir.FunctionType(c_result, [_I64] * arguments)
        function = builder.inttoptr(args[0], function_type.as_pointer())
        returned = builder.call(function, args[1:])
        return context.get_dummy_value() if result is types.void else returned

    return result(*[types.int64] * (arguments + 1)), codegen


@intrinsic
def call_i64_1(typing_context, function, a):
    """Call a C function of one word that returns a word."""
    return _caller(types.int64, 1)


@intrinsic
def call_i64_2(typing_context, function, a, b):
    """Call a C function of two words that returns a word."""
    return _caller(types.int64, 2)


@intrinsic
def call_i64_3(typing_context, function, a, b, c):
    """Call a C function of three words that returns a word."""
    return _caller(types.int64, 3)


@intrinsic
def call_i32_1(typing_context, function, a):
    """Call a C function of one word that returns an int."""
    return _caller(types.int32, 1)


@intrinsic
def call_i32_2(typing_context, function, a, b):
    """Call a C function of two words that returns an int."""
    return _caller(types.int32, 2)


@intrinsic
def call_i32_5(typing_context, function, a, b, c, d, e):
    """Call a C function of five words that returns an int."""
    return _caller(types.int32, 5)


@intrinsic
def call_void_1(typing_context, function, a):
    """Call a C function of one word that returns nothing."""
    return _caller(types.void, 1)


@intrinsic
def store_i64(typing_context, address, value):
    """Write 8 bytes at `address`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], _I64.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def raise_atomically(typing_context, address, value):
    """Make the 8 bytes at `address` at least `value`. Returns the old value."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("max", builder.inttoptr(args[0], _I64.as_pointer()), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def add_atomically(typing_context, address, value):
    """Add to the 8 bytes at `address`, seen by all threads after what was written before it. Returns the old value."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", builder.inttoptr(args[0], _I64.as_pointer()), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen
