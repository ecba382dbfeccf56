"""Windows moving over samples: sums, largest and smallest of whatever lies within, and the samples themselves.

Must not know aggregations. Invariant: results depend on the samples alone, to the last bit. A window of W is put
together from the end of one block and the beginning of the next, blocks being aligned to multiples of W: nothing is
ever subtracted, so nothing drifts, and each part is added up in the same order however the samples came.

A long window is cut into cells, and what lies in one of them counts as one, so that what is kept does not grow with the
window's length or the training's pace; samples that are farther apart than two cells stay as they are.

Suffixes: N samples, C channels reduced side by side, B blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfscope_server.alerts.aggregations.usual import mixed

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FEW_BLOCKS = 4
"""Up to so many are gone through one by one; more of them are laid out as a table."""
MAX_WASTE = 4
"""Cells of such a table for each sample; sparser ones are not made."""


def cells_of(key_N: Ints, width: int) -> Ints:
    """The cell of each key. Each begins somewhere else in its stretch, as if drawn: were all to begin at multiples of
    their width, the first sample of each would always be that of whatever happens every so many steps."""
    if width == 1:
        return key_N
    cell, place = np.divmod(key_N, width)
    begins = mixed(cell.astype(np.uint64)) % np.uint64(width)
    result: Ints = cell - (place < begins.astype(np.int64))
    return result


class Tail:
    """The newest samples of a stream: appended at one end, dropped at the other, constant work for each."""

    def __init__(self, num_channels: int = 1, width: int | None = None) -> None:
        """
        Args:
            width: of the cells of which only the first sample is kept; None: all are.
        """
        self._width = width
        self._key = np.empty(64, np.int64)
        self._value = np.empty((64, num_channels))
        self._first = self._end = 0

    def __len__(self) -> int:
        return self._end - self._first

    @property
    def keys(self) -> Ints:
        return self._key[self._first : self._end]

    @property
    def values(self) -> Floats:
        return self._value[self._first : self._end]

    def append(self, key_N: Ints, value_NC: Floats) -> Ints:
        """Add samples at the end.

        Returns:
            [N] where each of them is now, or the one that stands for its cell.
        """
        size = len(self)
        place_N = np.arange(size, size + key_N.size)
        if self._width is not None:
            is_new = new_cells(self.keys, key_N, self._width)
            if not is_new.all():
                place_N = size - 1 + np.cumsum(is_new)
                key_N, value_NC = key_N[is_new], value_NC[is_new]
        more = key_N.size
        if self._end + more > self._key.size:
            room = max(64, 2 * (size + more))
            key, value = np.empty(room, np.int64), np.empty((room, self._value.shape[1]))
            key[:size], value[:size] = self.keys, self.values
            self._key, self._value, self._first, self._end = key, value, 0, size
        self._key[self._end : self._end + more] = key_N
        self._value[self._end : self._end + more] = value_NC
        self._end += more
        return place_N

    def drop(self, count: int) -> None:
        """Forget the oldest."""
        self._first += count

    def clear(self) -> None:
        self._first = self._end = 0

    def widen(self, num_channels: int, fill: float) -> None:
        """More channels, which had no samples so far."""
        more = num_channels - self._value.shape[1]
        self._value = np.pad(self._value, ((0, 0), (0, more)), constant_values=fill)

    def state(self) -> dict[str, Any]:
        return {"key": self.keys.copy(), "value": self.values.copy()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._key, self._value = state["key"].copy(), state["value"].copy()
        self._first, self._end = 0, self._key.size


def new_cells(before: Ints, key_N: Ints, width: int) -> NDArray[np.bool_]:
    """Which of these keys begin a cell, behind others of which the last may be of the same."""
    cells = cells_of(np.concatenate((before[-1:], key_N)), width)
    result: NDArray[np.bool_] = np.diff(cells, prepend=cells[0] - 1 + before[-1:].size) != 0
    return result[before[-1:].size :]


class OnSliding:
    """What remembers nothing but one sliding window."""

    _sliding: Sliding

    def restart(self) -> None:
        self._sliding.restart()

    def state(self) -> dict[str, Any]:
        return self._sliding.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self._sliding.load(state)


class Sliding:
    """Reduces what lies in (key - window, key] of each sample."""

    def __init__(
        self, window: int, ufunc: np.ufunc, identity: float, num_channels: int, width: int | None = None
    ) -> None:
        """
        Args:
            ufunc: np.add, np.maximum or np.minimum.
            identity: what it leaves everything as it is with; stands for values that are not there.
            width: of the cells that samples are put together in; None: in none.
        """
        self._window, self._ufunc, self._identity = window, ufunc, identity
        self._num_channels, self._width = num_channels, width
        self.restart()

    def restart(self) -> None:
        self._block: int | None = None
        """Number of the block that is being filled."""
        self._current = Tail(self._num_channels)
        self._carry = np.full(self._num_channels, self._identity)
        """Of all samples of the current block."""
        self._is_merged = False
        """Whether some of them share a cell."""
        self._before_key = np.empty(0, np.int64)
        self._before = np.full((1, self._num_channels), self._identity)
        """Of the samples of the block before from each on, and the identity behind them."""

    def feed(self, key_N: Ints, value_NC: Floats) -> Floats:
        """[N, C]; samples ascend by key."""
        if value_NC.shape[1] > self._num_channels:
            self._widen(value_NC.shape[1])
        first_block = int(key_N[0]) // self._window
        if first_block == int(key_N[-1]) // self._window:
            return self._within_block(first_block, key_N, value_NC)
        in_cells = self._width is not None and (
            self._is_merged or not new_cells(self._current.keys, key_N, self._width).all()
        )
        blocks = key_N // self._window
        edges = np.flatnonzero(np.diff(blocks)) + 1
        starts = np.concatenate(([0], edges))
        ends = np.concatenate((edges, [key_N.size]))
        num_middle = starts.size - 2
        longest = int((ends - starts)[1:-1].max(initial=0))
        if in_cells or num_middle <= FEW_BLOCKS or longest * num_middle > MAX_WASTE * (ends[-2] - starts[1]):
            parts = [
                self._within_block(int(blocks[a]), key_N[a:b], value_NC[a:b])
                for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
            ]
        else:
            a, b = int(ends[0]), int(starts[-1])
            has_all = key_N[b - 1] - key_N[a] == b - a - 1 and b - a == num_middle * self._window
            parts = [
                self._within_block(int(blocks[0]), key_N[:a], value_NC[:a]),
                (self._dense_blocks if has_all else self._whole_blocks)(key_N[a:b], value_NC[a:b]),
                self._within_block(int(blocks[-1]), key_N[b:], value_NC[b:]),
            ]
        return np.concatenate(parts)

    def _within_block(self, block: int, key_N: Ints, value_NC: Floats) -> Floats:
        if block != self._block:
            self._roll(block)
        running = self._ufunc.accumulate(np.concatenate((self._carry[None], value_NC)), axis=0)[1:]
        self._carry = running[-1]
        self._keep(key_N, value_NC)
        if not self._before_key.size:
            return running
        low = self._before_key.searchsorted(key_N - self._window, "right")
        result: Floats = self._ufunc(self._before[low], running)
        return result

    def _keep(self, key_N: Ints, value_NC: Floats) -> None:
        """For the next block. What shares a cell is put together one by one: in the same order for any cut."""
        if self._width is None or (is_new := new_cells(self._current.keys, key_N, self._width)).all():
            self._current.append(key_N, value_NC)
            return
        self._is_merged = True
        place_N = len(self._current) - 1 + np.cumsum(is_new)
        self._current.append(key_N[is_new], np.full((int(is_new.sum()), self._num_channels), self._identity))
        self._ufunc.at(self._current.values, place_N, value_NC)

    def _roll(self, block: int) -> None:
        """Begin a block."""
        if self._block == block - 1 and len(self._current):
            self._before_key = self._current.keys.copy()
            self._before = self._from_each_on(self._current.values)
        else:
            self._before_key = np.empty(0, np.int64)
            self._before = np.full((1, self._num_channels), self._identity)
        self._block, self._is_merged = block, False
        self._current.clear()
        self._carry = np.full(self._num_channels, self._identity)

    def _from_each_on(self, value_NC: Floats) -> Floats:
        backwards = self._ufunc.accumulate(value_NC[::-1], axis=0)[::-1]
        return np.concatenate((backwards, np.full((1, self._num_channels), self._identity)))

    def _whole_blocks(self, key_N: Ints, value_NC: Floats) -> Floats:
        """Many blocks at once, the current one and those after it: the same sums in the same order, as a table."""
        num_before = len(self._current)
        key = np.concatenate((self._current.keys, key_N))
        value = np.concatenate((self._current.values, value_NC))
        blocks = key // self._window
        starts = np.concatenate(([0], np.flatnonzero(np.diff(blocks)) + 1))
        sizes = np.diff(np.append(starts, key.size))
        row = np.repeat(np.arange(starts.size), sizes)
        column = np.arange(key.size) - starts[row]
        table = np.full((starts.size, int(sizes.max()), self._num_channels), self._identity)
        table[row, column] = value
        running = self._ufunc.accumulate(table, axis=1)[row, column]
        onwards = self._ufunc.accumulate(table[:, ::-1], axis=1)[:, ::-1][row, column]
        low = np.searchsorted(key, key - self._window, "right")
        reaches_back = low < starts[row]
        earlier = np.where(reaches_back[:, None], onwards[np.minimum(low, key.size - 1)], self._identity)
        result: Floats = self._ufunc(earlier, running)[num_before:]
        last = int(starts[-1])
        self._block = int(blocks[-1])
        self._current.clear()
        self._current.append(key[last:], value[last:])
        self._carry = running[-1].copy()
        return result

    def _dense_blocks(self, key_N: Ints, value_NC: Floats) -> Floats:
        """The same where no step is missing in them: every block has its whole window."""
        window = self._window
        first = self._within_block(int(key_N[0]) // window, key_N[:window], value_NC[:window])
        shape = (key_N.size // window, window) + (() if self._num_channels == 1 else (self._num_channels,))
        table = value_NC.reshape(shape)
        running = self._ufunc.accumulate(table, axis=1)
        onwards = self._ufunc.accumulate(table[:-1, ::-1], axis=1)[:, ::-1]
        last = table[-1].reshape(window, self._num_channels)
        self._block = int(key_N[-1]) // window
        self._current.clear()
        self._current.append(key_N[-window:], last)
        self._carry = running[-1, -1].reshape(self._num_channels).copy()
        running[1:, :-1] = self._ufunc(onwards[:, 1:], running[1:, :-1])
        result = running.reshape(key_N.size, self._num_channels)
        result[:window] = first
        return result

    def _widen(self, num_channels: int) -> None:
        more = num_channels - self._num_channels
        self._num_channels = num_channels
        self._current.widen(num_channels, self._identity)
        self._carry = np.pad(self._carry, (0, more), constant_values=self._identity)
        self._before = np.pad(self._before, ((0, 0), (0, more)), constant_values=self._identity)

    def state(self) -> dict[str, Any]:
        return {
            "channels": self._num_channels,
            "block": self._block,
            "merged": self._is_merged,
            "current": self._current.state(),
            "carry": self._carry.copy(),
            "before_key": self._before_key.copy(),
            "before": self._before.copy(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._num_channels, self._block, self._is_merged = state["channels"], state["block"], state["merged"]
        self._current = Tail(self._num_channels)
        self._current.load(state["current"])
        self._carry, self._before_key, self._before = state["carry"], state["before_key"], state["before"]
