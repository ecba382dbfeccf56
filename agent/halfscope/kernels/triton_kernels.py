"""Triton kernels over all gradients of one type on a device: sums of squares, and what an exponent sketch is made of.

Imports triton: only `halfscope.kernels.fused` loads this module, and only where there is one. Launches nothing itself.
Work is cut into pieces, one for each program: a row of `pieces` names the tensor, the byte at which the piece begins
and its number of elements. A program writes a row of its own and adds nothing to what others wrote; a second kernel
adds up the rows of each tensor, always in the same order.
Invariant: counts are whole numbers found by looking at bits, never by arithmetic that rounds or flushes; they and the
extremes equal those of exact arithmetic, and a result does not depend on the order in which programs ran.
"""

from __future__ import annotations

import triton
import triton.language as tl

from halfscope.kernels import rows as layout

PIECE_WIDTH = 320
"""A piece's row: the counts of `halfscope.kernels.rows`, then the bits of the largest and of the smallest nonzero
magnitude."""

_FIELDS: tl.constexpr = tl.constexpr(layout.NUM_FIELDS)
_SUBNORMAL: tl.constexpr = tl.constexpr(layout.NUM_SUBNORMAL)
_KINDS: tl.constexpr = tl.constexpr(layout.KINDS)
_COUNTS: tl.constexpr = tl.constexpr(layout.NUM_COUNTS)
_ROW: tl.constexpr = tl.constexpr(layout.ROW_WIDTH)
_PIECE: tl.constexpr = tl.constexpr(PIECE_WIDTH)
_INFINITY: tl.constexpr = tl.constexpr(0x7F800000)
_MAGNITUDE: tl.constexpr = tl.constexpr(0x7FFFFFFF)
_MANTISSA: tl.constexpr = tl.constexpr(0x007FFFFF)


@triton.jit
def _widened(value, DTYPE: tl.constexpr):
    """As float32, every value exactly. BF16 comes as uint16: it is the upper half of a float32."""
    if DTYPE == tl.uint16:  # noqa: SIM108, SIM300 - the compiler takes one of the two away
        wide = (value.to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    else:
        wide = value.to(tl.float32)
    return wide


@triton.jit
def _piece(addresses, pieces, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    """This program's elements: where they begin, how many there are, where the first whole block begins (on a multiple
    of 16 bytes, as wide loads need it), how many blocks are whole, and how many elements lie before the first."""
    row = pieces + tl.program_id(0) * 3
    address = tl.load(addresses + tl.load(row)) + tl.load(row + 1)
    count = tl.load(row + 2).to(tl.int32)
    even = (address + 15) // 16 * 16
    num_before = tl.minimum(((even - address) // (DTYPE.primitive_bitwidth // 8)).to(tl.int32), count)
    whole = tl.multiple_of(even.to(tl.pointer_type(DTYPE)), 16)
    return address.to(tl.pointer_type(DTYPE)), count, whole, (count - num_before) // BLOCK, num_before


@triton.jit
def _block(at, start, count, whole, num_whole, num_before, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    """The `at`-th block, and how many of its elements are there: the whole blocks come first, then what lies before
    and behind them."""
    lane = tl.arange(0, BLOCK)
    num_inside = BLOCK
    if at < num_whole:
        value = tl.load(whole + at * BLOCK + lane)
    else:
        rest = (at - num_whole) * BLOCK + lane
        num_inside = count - num_whole * BLOCK - (at - num_whole) * BLOCK
        place = tl.where(rest < num_before, rest, rest + num_whole * BLOCK)
        value = tl.load(start + place, mask=lane < num_inside, other=0)
    return _widened(value, DTYPE), num_inside


@triton.jit(do_not_specialize_on_alignment=["addresses", "pieces", "sums"])
def squares(addresses, pieces, sums, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    """Of each piece the sum of squares. In float64 squares of any float32 neither vanish nor overflow."""
    start, count, whole, num_whole, num_before = _piece(addresses, pieces, DTYPE, BLOCK)
    lane = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float64)
    for at in range(num_whole):
        value = _widened(tl.load(whole + at * BLOCK + lane), DTYPE).to(tl.float64)
        total += value * value
    for at in range(num_whole, num_whole + tl.cdiv(count - num_whole * BLOCK, BLOCK)):
        value = _block(at, start, count, whole, num_whole, num_before, DTYPE, BLOCK)[0].to(tl.float64)
        total += value * value
    tl.store(sums + tl.program_id(0), tl.sum(total, 0))


@triton.jit(do_not_specialize_on_alignment=["sums", "bounds", "out"])
def norms(sums, bounds, out, BLOCK: tl.constexpr):
    """Of each tensor the L2 norm, from the pieces that `bounds` says are its own."""
    at = tl.program_id(0)
    begin = tl.load(bounds + at * 2).to(tl.int32)
    end = tl.load(bounds + at * 2 + 1).to(tl.int32)
    lane = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float64)
    for piece in range(begin, end, BLOCK):
        total += tl.load(sums + piece + lane, mask=piece + lane < end, other=0.0)
    tl.store(out + at, tl.sqrt(tl.sum(total, 0)))


@triton.jit
def _subnormal(start, count, scale_mantissa, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    """Subnormal elements of a piece by exponent: seldom there, so they are counted in a look of their own."""
    lane = tl.arange(0, BLOCK)
    counts = tl.zeros([_SUBNORMAL], tl.int32)
    for at in range(0, count, BLOCK):
        value = _widened(tl.load(start + at + lane, mask=at + lane < count, other=0), DTYPE)
        magnitude = value.to(tl.int32, bitcast=True) & _MAGNITUDE
        is_subnormal = (magnitude > 0) & (magnitude <= _MANTISSA)
        # A whole number below 2^24 as float32: exact, and its own exponent is the place of the first bit.
        normal = magnitude.to(tl.float32).to(tl.int32, bitcast=True)
        exponent = (normal >> 23) - 126 - ((normal & _MANTISSA) < scale_mantissa).to(tl.int32)
        counts += tl.histogram(tl.where(is_subnormal, exponent, _SUBNORMAL - 1), _SUBNORMAL)
    return counts


@triton.jit(do_not_specialize_on_alignment=["addresses", "pieces", "scale", "rows", "sums"])
def sketches(addresses, pieces, scale, rows, sums, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    """Of each piece a row of counts, and two sums; as divided by the scale, but for its power of two."""
    start, count, whole, num_whole, num_before = _piece(addresses, pieces, DTYPE, BLOCK)
    scale_mantissa = tl.load(scale).to(tl.int32, bitcast=True) & _MANTISSA
    counts = tl.zeros([_FIELDS], tl.int32)
    kinds = tl.zeros([BLOCK], tl.int32)
    infinities = tl.zeros([BLOCK], tl.int32)
    total = tl.zeros([BLOCK], tl.float64)
    squares = tl.zeros([BLOCK], tl.float64)
    largest = tl.zeros([BLOCK], tl.int32)
    smallest = tl.full([BLOCK], _INFINITY, tl.int32)
    for at in range(num_whole + tl.cdiv(count - num_whole * BLOCK, BLOCK)):
        value, num_inside = _block(at, start, count, whole, num_whole, num_before, DTYPE, BLOCK)
        bits = value.to(tl.int32, bitcast=True)
        magnitude = bits & _MAGNITUDE
        inside = tl.arange(0, BLOCK) < num_inside
        is_finite = inside & (magnitude < _INFINITY)
        # x / S lies below 2^(e(x) - e(S)) where x's mantissa is less than S's: no division, so nothing is rounded.
        field = (magnitude >> 23) - ((magnitude & _MANTISSA) < scale_mantissa).to(tl.int32)
        counts += tl.histogram(tl.where(is_finite & (magnitude > _MANTISSA), field, _FIELDS - 1), _FIELDS)
        # Two counts in one number: a piece has fewer than 2^16 blocks.
        kinds += (inside & (magnitude == 0)).to(tl.int32) + ((inside & (magnitude > _INFINITY)).to(tl.int32) << 16)
        infinities += (inside & (bits == _INFINITY)).to(tl.int32)
        infinities += (inside & (magnitude == _INFINITY) & (bits < 0)).to(tl.int32) << 16
        finite = tl.where(is_finite, value, 0.0).to(tl.float64)
        total += finite
        squares += finite * finite
        largest = tl.maximum(largest, tl.where(is_finite, magnitude, 0))
        smallest = tl.minimum(smallest, tl.where(is_finite & (magnitude > 0), magnitude, _INFINITY))
    below = tl.zeros([_SUBNORMAL], tl.int32)
    least = tl.min(smallest, 0)
    if least <= _MANTISSA:
        below = _subnormal(start, count, scale_mantissa, DTYPE, BLOCK)
    row = rows + tl.program_id(0).to(tl.int64) * _PIECE
    # In the last of either lies what has no place in it, and how much of that there is depends on the blocks.
    tl.store(row + tl.arange(0, _FIELDS), tl.where(tl.arange(0, _FIELDS) < _FIELDS - 1, counts, 0))
    place = tl.arange(0, _SUBNORMAL)
    tl.store(row + _FIELDS + place, tl.where(place < _SUBNORMAL - 1, below, 0))
    tl.store(row + _KINDS, tl.sum(kinds & 0xFFFF, 0))
    tl.store(row + _KINDS + 1, tl.sum((kinds >> 16) & 0xFFFF, 0))
    tl.store(row + _KINDS + 2, tl.sum(infinities & 0xFFFF, 0))
    tl.store(row + _KINDS + 3, tl.sum((infinities >> 16) & 0xFFFF, 0))
    tl.store(row + _KINDS + 4, tl.max(largest, 0))
    tl.store(row + _KINDS + 5, least)
    tl.store(sums + tl.program_id(0) * 2, tl.sum(total, 0))
    tl.store(sums + tl.program_id(0) * 2 + 1, tl.sum(squares, 0))


@triton.jit(do_not_specialize_on_alignment=["rows", "sums", "bounds", "scale", "out", "out_float"])
def tensors(rows, sums, bounds, scale, out, out_float, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Of each tensor a row: its pieces' counts added up in int64, then sums and extremes, and the scale.

    A program has some columns of one tensor; the last one of a tensor what lies behind the counts. `out` and
    `out_float` are the same memory.
    """
    at = tl.program_id(0)
    begin = tl.load(bounds + at * 2).to(tl.int32)
    end = tl.load(bounds + at * 2 + 1).to(tl.int32)
    piece = tl.arange(0, ROWS)
    if tl.program_id(1) < tl.num_programs(1) - 1:
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        counts = tl.zeros([ROWS, COLUMNS], tl.int64)
        for some in range(begin, end, ROWS):
            place = rows + (some + piece)[:, None].to(tl.int64) * _PIECE + column[None, :]
            inside = (some + piece < end)[:, None] & (column < _COUNTS)[None, :]
            counts += tl.load(place, mask=inside, other=0).to(tl.int64)
        tl.store(out + at.to(tl.int64) * _ROW + column, tl.sum(counts, 0), mask=column < _COUNTS)
    else:
        total = tl.zeros([ROWS], tl.float64)
        squares = tl.zeros([ROWS], tl.float64)
        largest = tl.zeros([ROWS], tl.int32)
        smallest = tl.full([ROWS], _INFINITY, tl.int32)
        for some in range(begin, end, ROWS):
            inside = some + piece < end
            place = rows + (some + piece).to(tl.int64) * _PIECE + _KINDS
            total += tl.load(sums + (some + piece) * 2, mask=inside, other=0.0)
            squares += tl.load(sums + (some + piece) * 2 + 1, mask=inside, other=0.0)
            largest = tl.maximum(largest, tl.load(place + 4, mask=inside, other=0))
            smallest = tl.minimum(smallest, tl.load(place + 5, mask=inside, other=_INFINITY))
        place = out_float + at.to(tl.int64) * _ROW + _COUNTS
        tl.store(place, tl.sum(total, 0))
        tl.store(place + 1, tl.sum(squares, 0))
        tl.store(place + 2, tl.max(largest, 0).to(tl.float32, bitcast=True).to(tl.float64))
        tl.store(place + 3, tl.min(smallest, 0).to(tl.float32, bitcast=True).to(tl.float64))
        tl.store(place + 4, tl.load(scale).to(tl.float64))
