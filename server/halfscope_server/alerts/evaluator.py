"""Rules evaluated on one run: records in, episodes out.

Owns what a run's evaluation remembers and how it is saved. Must not ask a clock, a store or a network. Invariant: the
episodes are a function of the rules and of the data in the order of each stream: any cut into updates, and any saving
and loading of the state in between, gives the same ones with the same ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from halfscope_server.alerts import metrics as catalog
from halfscope_server.alerts.block import Block
from halfscope_server.alerts.episodes import Teller
from halfscope_server.alerts.lane import Lane
from halfscope_server.alerts.node import Happened, Node
from halfscope_server.alerts.packing import pack, unpack
from halfscope_server.alerts.rule import Rule
from halfscope_server.alerts.scope import covers
from halfscope_server.alerts.track import Baseline, LaneKey, Track
from halfscope_server.alerts.types import Update
from halfscope_server.store.types import SERVER_STREAM, EpisodeRow, EventRow, RunRow
from halfscope_server.store.update_types import Wanted

CLOCK_SERIES = "opt.steps"
"""In every row of the agent's: rows are counted by it."""
ENDS = ("finished", "exception", "killed", "superseded")
"""How a stream ends for good; one that was lost may come back."""


class Version(Protocol):
    """What is needed of a rule's row."""

    @property
    def version(self) -> int: ...


class RunEvaluator:
    """Evaluates rules on one run; see the module. Not for several threads at once."""

    def __init__(
        self,
        run: RunRow,
        rules: Sequence[tuple[Version, Rule]],
        *,
        state: bytes | None = None,
        baseline: Baseline = lambda rule: None,
        url: str = "",
    ) -> None:
        """
        Args:
            run: the run as it is now.
            rules: all rules there are, with their rows; those that do not look at this run are left out.
            state: what `state` gave before. Where rules have changed since, the first `feed` tells what is over.
            baseline: the usual value of a rule's metric in the run that it names as baseline; None: there is none.
            url: address of the run's page, for templates.
        """
        self._run, self._baseline = run, baseline
        self._teller = Teller(url)
        self._rules: Sequence[tuple[Version, Rule]] = ()
        self._versions: list[tuple[str, int]] = []
        self._attempt = -1
        self._streams: dict[str, str] = {}
        """How each stream of the newest attempt ended; empty: it goes on."""
        self._ranks: set[int] = set()
        self._rank_of: dict[str, int] = {}
        self._ends: dict[str, tuple[int, int]] = {}
        """Newest step and newest time of each of them."""
        self._lanes: dict[LaneKey, Lane] = {}
        self._tracks: dict[tuple[str, LaneKey], Track] = {}
        self._tracks_of: dict[LaneKey, list[Track]] = {}
        self._wanted = Wanted()
        self._by_rank = False
        """Whether there are rules that make a lane of each rank that comes."""
        self._build(rules, {} if state is None else unpack(state) or {})

    @property
    def errors(self) -> dict[str, str]:
        """Rules that cannot be evaluated on this run, by id, and why."""
        found: dict[str, str] = {}
        for track in self._tracks.values():
            found |= track.missing_baselines()
        return found

    def inputs(self) -> Wanted:
        """What must be handed over for these rules; more does no harm."""
        return self._wanted

    def open_ids(self) -> set[str]:
        """Episodes that are pending or fire."""
        return self._teller.open_ids()

    def set_rules(self, rules: Sequence[tuple[Version, Rule]], run: RunRow | None = None) -> list[EpisodeRow]:
        """Go on with other rules, or with a run that was renamed or tagged.

        Returns:
            Episodes that are over because of it.
        """
        self._tell_progress()
        self._run = run or self._run
        self._build(rules, self._plain())
        return self._teller.take()

    def feed(self, updates: Sequence[Update], run: RunRow | None = None) -> list[EpisodeRow]:
        """Take in what is new, of any streams in any order; updates of one stream in theirs.

        Args:
            run: the run's row, where it was read anew.

        Returns:
            Every episode that began, fired or ended, as it stands now; `Teller` says what is left to fill in.
        """
        self._run = run or self._run
        by_attempt: dict[int, list[Update]] = {}
        signals: dict[int, list[EventRow]] = {}
        for update in updates:
            if update.stream == SERVER_STREAM:
                for event in update.events:
                    if event.kind in self._wanted.events:
                        signals.setdefault(event.attempt, []).append(event)
            else:
                by_attempt.setdefault(update.attempt, []).append(update)
        for attempt in sorted(by_attempt.keys() | signals.keys()):
            if attempt >= self._attempt:
                self._feed_attempt(attempt, by_attempt.get(attempt, []), signals.get(attempt, []))
        return self._teller.take()

    def progress(self) -> list[EpisodeRow]:
        """Open episodes that have gone on since they were last told: newest step and farthest value."""
        self._tell_progress()
        return self._teller.take()

    def state(self) -> bytes:
        """Everything needed to go on in another process."""
        return pack(self._plain())

    # ---- data ---------------------------------------------------------------------------------

    def _feed_attempt(self, attempt: int, updates: Sequence[Update], signals: Sequence[EventRow]) -> None:
        if attempt > self._attempt:
            self._restart(attempt)
        new_ranks = {update.rank for update in updates} - self._ranks
        if new_ranks:
            self._ranks |= new_ranks
            if self._by_rank:
                self._build(self._rules, self._plain())
        for update in updates:
            self._push(update)
        for event in signals:
            for lane in self._lanes.values():
                lane.signal(event)
        for key, lane in self._lanes.items():
            is_over = self._is_over(key)
            block = lane.take(self._run, final=is_over)
            if block is not None:
                self._judge(key, block)
            if is_over:
                self._end(key)
        if self._is_over(None):
            self._teller.close_all("run ended", *self._end_of(None), self._attempt)

    def _push(self, update: Update) -> None:
        columns = [column for column in update.columns if column.series.name in self._wanted.series]
        events = [event for event in update.events if event.kind in self._wanted.events]
        if update.ended or update.columns or update.stream not in self._streams:
            self._streams[update.stream] = update.ended
        self._rank_of[update.stream] = update.rank
        step, end_us = self._ends.get(update.stream, (-1, 0))
        passed = -1
        for column in update.columns:
            if column.step.size and int(column.step[-1]) > passed:
                passed, end_us = int(column.step[-1]), max(end_us, int(column.time_us[-1]))
        self._ends[update.stream] = max(step, passed), max(end_us, update.end_us or 0)
        for lane in self._lanes.values():
            lane.push(update, columns, events, passed, wanted=self._wanted)

    def _judge(self, key: LaneKey, block: Block) -> None:
        for track in self._tracks_of[key]:
            self._note(track, track.feed(block, self._attempt))

    def _note(self, track: Track, found: Iterator[tuple[Node, Happened]]) -> None:
        for node, (on, layer, machine, change) in found:
            self._teller.happened(self._run, on, node.labels, layer, machine, track.metric, change)

    def _settle(self) -> None:
        """Judge what is held back: before states are saved, and before windows begin anew."""
        for track in self._tracks.values():
            self._note(track, track.settle(self._attempt))

    def _tell_progress(self) -> None:
        for track in self._tracks.values():
            for on, labels, layer, machine in track.machines:
                self._teller.tell(self._run, on, labels, layer, machine, track.metric)

    def _restart(self, attempt: int) -> None:
        self._settle()
        self._attempt = attempt
        self._streams, self._rank_of, self._ends = {}, {}, {}
        for lane in self._lanes.values():
            lane.restart()
        for track in self._tracks.values():
            track.restart()

    def _of(self, key: LaneKey) -> list[str]:
        """Streams of these ranks."""
        return [stream for stream in self._streams if key is None or self._rank_of[stream] in key]

    def _is_over(self, key: LaneKey) -> bool:
        """Whether every stream of these ranks has ended; of ranks that are not there, of all."""
        streams = self._of(key) or self._of(None)
        return bool(streams) and all(self._streams[stream] in ENDS for stream in streams)

    def _end_of(self, key: LaneKey) -> tuple[int, int]:
        """Newest step and newest time of these ranks."""
        ends = [self._ends[stream] for stream in self._of(key) or self._of(None)]
        return max((step for step, _ in ends), default=-1), max((end_us for _, end_us in ends), default=0)

    def _end(self, key: LaneKey) -> None:
        """Nothing more comes of these ranks: nothing fires there any more."""
        for track in self._tracks_of[key]:
            for on, labels, layer, machine in track.machines:
                row = self._teller.tell(self._run, on, labels, layer, machine, track.metric)
                resolution = "run ended" if on.rank is None else "rank ended"
                self._teller.close(row, resolution, *self._end_of(key), self._attempt)
            track.forget_machines()

    # ---- rules and state ----------------------------------------------------------------------

    def _build(self, rules: Sequence[tuple[Version, Rule]], kept: Mapping[str, Any]) -> None:
        """Lanes and tracks for these rules, going on from a state as far as it is of use to them."""
        self._rules = tuple(rules)
        self._versions = [(rule.id, row.version) for row, rule in rules]
        self._attempt = kept.get("attempt", -1)
        self._streams = dict(kept.get("streams", {}))
        self._ranks = set(kept.get("ranks", ()))
        self._rank_of = dict(kept.get("rank_of", {}))
        self._ends = {stream: tuple(end) for stream, end in kept.get("ends", {}).items()}
        looking = [(rule, row.version) for row, rule in rules if rule.enabled and covers(rule, self._run)]
        self._by_rank = any("rank" in rule.group_by and not rule.scope.ranks for rule, _ in looking)
        of_track: dict[tuple[str, LaneKey], list[tuple[Rule, int]]] = {}
        for rule, version in looking:
            for lane in self._lanes_of(rule):
                of_track.setdefault((catalog.canonical(rule.metric), lane), []).append((rule, version))
        self._tracks = {}
        states = {(metric, _lane_key(lane)): state for metric, lane, state in kept.get("tracks", ())}
        for key, some in of_track.items():
            self._tracks[key] = Track(*key, some, self._baseline)
            if key in states:
                self._tracks[key].load(states[key])
        self._lanes = {}
        lanes = {_lane_key(lane): state for lane, state in kept.get("lanes", ())}
        for lane in {lane for _, lane in of_track}:
            self._lanes[lane] = Lane(None if lane is None else frozenset(lane))
            if lane in lanes:
                self._lanes[lane].load(lanes[lane])
        self._tracks_of = {
            lane: [track for (_, of), track in self._tracks.items() if of == lane] for lane in self._lanes
        }
        self._wanted = _inputs({catalog.canonical(rule.metric) for rule, _ in looking})
        if kept:
            self._teller.load(kept["episodes"])
            going_on = {(rule.id, version) for rule, version in looking}
            self._teller.close_others(going_on, {rule.id for _, rule in rules}, *self._end_of(None), self._attempt)
            self._resume(going_on, {tuple(rule) for rule in kept["rules"]})

    def _resume(self, rules: Collection[tuple[str, int]], kept: Collection[tuple[str, int]]) -> None:
        """Rules that were changed hear of what was told by an event and still goes on."""
        changed = {rule for rule in rules if rule not in kept and any(rule[0] == rule_id for rule_id, _ in kept)}
        if not changed:
            return
        for key, tracks in self._tracks_of.items():
            for track in tracks if not self._is_over(key) else ():
                self._note(track, track.resume(changed, self._attempt))

    def _lanes_of(self, rule: Rule) -> list[LaneKey]:
        ranks = tuple(sorted(set(rule.scope.ranks)))
        if "rank" not in rule.group_by:
            return [ranks or None]
        return [(rank,) for rank in (ranks or sorted(self._ranks))]

    def _plain(self) -> dict[str, Any]:
        self._settle()
        return {
            "attempt": self._attempt,
            "streams": dict(self._streams),
            "ranks": sorted(self._ranks),
            "rank_of": self._rank_of,
            "ends": self._ends,
            "rules": self._versions,
            "tracks": [[metric, lane, track.state()] for (metric, lane), track in self._tracks.items()],
            "lanes": [[key, lane.state()] for key, lane in self._lanes.items()],
            "episodes": self._teller.state(),
        }


def _lane_key(plain: Sequence[int] | None) -> LaneKey:
    return None if plain is None else tuple(plain)


def _inputs(metrics: Collection[str]) -> Wanted:
    """What these metrics are made of; of rules for each rank too, of which none has come yet."""
    series, events, frames, changes = {CLOCK_SERIES}, set[str](), False, False
    for metric in metrics:
        derived = catalog.find(metric)
        if derived is None:
            series.add(metric)
        else:
            series |= derived.inputs.series
            events |= derived.inputs.events
            frames, changes = frames or derived.inputs.frames, changes or derived.inputs.changes
    return Wanted(series=frozenset(series), events=frozenset(events), frames=frames, changes=changes)
