"""One metric in one lane: where its samples come from, and the nodes that compare them.

Must not know updates or states of other tracks. Invariant: rules with the same aggregation, argument, window and
baseline share one node per set of labels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from halfscope_server.alerts import metrics as catalog
from halfscope_server.alerts.aggregations import aggregations
from halfscope_server.alerts.block import Block
from halfscope_server.alerts.machine import Levels, Machine
from halfscope_server.alerts.metrics.base import Found, Labels, LayerSamples, Memory, Source
from halfscope_server.alerts.node import Happened, Node, Observer, RuleOnNode
from halfscope_server.alerts.quiet import Quiet, Stretch
from halfscope_server.alerts.rule import Rule
from halfscope_server.alerts.types import Samples, joined

LaneKey = tuple[int, ...] | None
"""Ranks; None: all."""
Spec = tuple[str, float | None, int | None, float | None, str]
"""Aggregation, argument, window in steps and in seconds, baseline: what rules on one node agree in."""
Baseline = Callable[[Rule], float | None]


def spec_of(rule: Rule) -> Spec:
    """See `Spec`."""
    return rule.aggregation, rule.argument, rule.window.steps, rule.window.seconds, rule.baseline


class Track:
    """See the module."""

    def __init__(
        self,
        metric: str,
        lane: LaneKey,
        rules: Sequence[tuple[Rule, int]],
        baseline: Baseline,
        observe: Observer | None = None,
    ) -> None:
        """
        Args:
            metric: a derived metric's id, or the name of a series.
            rules: those about it in this lane, with their versions.
            baseline: see `RunEvaluator`.
            observe: is shown all compared numbers.
        """
        self.metric, self.lane = metric, lane
        self._derived = catalog.find(metric)
        self._rules, self._baseline, self._observe = rules, baseline, observe
        self._specs = tuple(dict.fromkeys(spec_of(rule) for rule, _ in rules))
        self._compared = [rule for rule, _ in rules if rule.baseline]
        self._references: dict[str, float | None] = {}
        self._nodes: dict[tuple[Spec, Labels], Node] = {}
        self._layer_nodes: list[Node] = []
        self._groups: dict[Labels, _Group] = {}
        self._stretches: dict[Labels, Sequence[Stretch]] = {}
        """Of groups that were saved."""
        self.memory: Memory = {}
        self._source = self._make()

    def _make(self) -> Source:
        return _Series(self.metric) if self._derived is None else self._derived.make(self.memory)

    @property
    def machines(self) -> Iterator[tuple[RuleOnNode, Mapping[str, str], str, Machine]]:
        """(rule, labels, layer, machine) of everything that is not idle."""
        for node in self._nodes.values():
            for on in node.rules:
                for layer, machine in on.machines.items():
                    yield on, node.labels, layer, machine

    def samples(self, block: Block) -> Found:
        """The metric's numbers of a block, judged by nobody."""
        return self._source.feed(block)

    def feed(self, block: Block, attempt: int) -> Iterator[tuple[Node, Happened]]:
        """Judge a block."""
        found = self._source.feed(block)
        if isinstance(found, LayerSamples):
            if found.step.size:
                for node in self._nodes_of_layers():
                    for happened in node.feed(found.step, found.time_us, found.value, found.names, attempt):
                        yield node, happened
            return
        for labels, samples in found.items():
            if samples.step.size:
                group = self._group(labels)
                yield from _fed(group.at_once, samples, attempt)
                if group.waiting and (ready := group.quiet.take(samples)) is not None:
                    yield from _fed(group.waiting, ready, attempt)

    def settle(self, attempt: int) -> Iterator[tuple[Node, Happened]]:
        """Feed nodes what is held back."""
        for group in self._groups.values():
            if (ready := group.quiet.release()) is not None:
                yield from _fed(group.waiting, ready, attempt)

    def resume(self, changed: Collection[tuple[str, int]], attempt: int) -> Iterator[tuple[Node, Happened]]:
        """Show rules that were changed (id, version) what the last event said: there may be none after it."""
        now = getattr(self._source, "now", None)
        told = None if now is None else now()
        if told is not None:
            for node in self._group(()).at_once:
                for happened in node.resume(told, changed, attempt):
                    yield node, happened

    def restart(self) -> None:
        """The training began anew; `settle` comes before."""
        self._source.restart()
        for node in self._nodes.values():
            node.restart()
        for group in self._groups.values():
            group.quiet.restart()

    def forget_machines(self) -> None:
        """The run is over."""
        for node in self._nodes.values():
            for on in node.rules:
                on.machines.clear()

    def mute(self) -> None:
        """Judge no more, but go on showing the compared numbers."""
        for node in self._nodes.values():
            node.rules = []

    def missing_baselines(self) -> dict[str, str]:
        """Rules that cannot be evaluated, and why."""
        return {
            rule.id: f"the baseline run {rule.baseline!r} has no {rule.metric}, or is not there"
            for rule in self._compared
            if self._references.get(rule.baseline, 0.0) is None
        }

    def _nodes_of_layers(self) -> list[Node]:
        if not self._layer_nodes:
            self._layer_nodes = [self._nodes.get((spec, ())) or self._add(spec, (), True) for spec in self._specs]
        return self._layer_nodes

    def _group(self, labels: Labels) -> _Group:
        group = self._groups.get(labels)
        if group is None:
            nodes = [self._nodes.get((spec, labels)) or self._add(spec, labels, False) for spec in self._specs]
            waiting = [node for node in nodes if node.can_wait]
            quiet = Quiet(waiting, self._stretches.get(labels, ()))
            group = _Group([node for node in nodes if not node.can_wait], waiting, quiet)
            self._groups[labels] = group
        return group

    def _add(self, spec: Spec, labels: Labels, by_layer: bool) -> Node:
        rules = [(rule, version) for rule, version in self._rules if spec_of(rule) == spec]
        first = rules[0][0]
        if first.baseline and first.baseline not in self._references:
            self._references[first.baseline] = self._baseline(first)
        reference = self._references.get(first.baseline)
        if first.baseline and reference is None:
            reference = np.nan
        node = Node(first, dict(labels), by_layer=by_layer, reference=reference)
        node.rules = [self._on(rule, version) for rule, version in rules]
        node.observe = self._observe
        self._nodes[spec, labels] = node
        return node

    def _on(self, rule: Rule, version: int) -> RuleOnNode:
        levels = Levels.of(rule)
        aggregation = aggregations()[rule.aggregation]
        only_grows = aggregation.id == "max" or (self._derived is not None and self._derived.counts)
        early = (aggregation.early == "above" and levels.sign > 0 and only_grows) or (
            aggregation.early == "below" and levels.sign < 0
        )
        return RuleOnNode(
            rule=rule,
            version=version,
            levels=levels,
            judges_early=early or not aggregation.needs_window,
            by_layer="layer" in rule.group_by,
            rank=self.lane[0] if self.lane is not None and "rank" in rule.group_by else None,
        )

    def state(self) -> dict[str, Any]:
        """Everything that `load` needs; `settle` comes before."""
        save = getattr(self._source, "save", None)
        if save is not None:
            save()
        nodes = [
            {"spec": spec, "labels": labels, "by_layer": node.by_layer, **node.state()}
            for (spec, labels), node in self._nodes.items()
        ]
        machines = [
            [on.rule.id, on.version, tuple(sorted(labels.items())), layer, asdict(machine)]
            for on, labels, layer, machine in self.machines
        ]
        return {
            "memory": self.memory,
            "nodes": nodes,
            "quiet": [[labels, group.quiet.state()] for labels, group in self._groups.items()],
            "references": self._references,
            "machines": machines,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from there with the rules that are left of those it was made with, and with new ones."""
        self.memory = state["memory"]
        self._source = self._make()
        self._references = dict(state["references"])
        self._stretches = {tuple(tuple(pair) for pair in labels): stretches for labels, stretches in state["quiet"]}
        for kept in state["nodes"]:
            spec, labels = tuple(kept["spec"]), tuple(tuple(pair) for pair in kept["labels"])
            if spec in self._specs:
                self._add(spec, labels, kept["by_layer"]).load(kept)
        going_on = {
            (on.rule.id, on.version, labels): on for (_, labels), node in self._nodes.items() for on in node.rules
        }
        for rule_id, version, labels, layer, machine in state["machines"]:
            on = going_on.get((rule_id, version, tuple(tuple(pair) for pair in labels)))
            if on is not None:
                on.machines[layer] = Machine(**machine)


@dataclass(frozen=True, slots=True)
class _Group:
    """The nodes of one stream of samples."""

    at_once: Sequence[Node]
    waiting: Sequence[Node]
    """Those that samples are held back from."""
    quiet: Quiet


def _fed(nodes: Sequence[Node], samples: Samples, attempt: int) -> Iterator[tuple[Node, Happened]]:
    value = samples.value[:, None]
    for node in nodes:
        for happened in node.feed(samples.step, samples.time_us, value, (), attempt):
            yield node, happened


class _Series:
    """A series as it is; of no derived metric's making."""

    def __init__(self, name: str) -> None:
        self._name = name

    def feed(self, block: Block) -> Found:
        found: dict[Labels, Samples] = {}
        columns = block.named(self._name)
        if block.late:
            columns = [*(column for column in block.late if column.series.name == self._name), *columns]
        for column in columns:
            labels = column.labels
            samples = Samples(step=column.step, time_us=column.time_us, value=column.value)
            before = found.get(labels)
            found[labels] = samples if before is None else joined((before, samples))
        return found

    def restart(self) -> None:
        pass
