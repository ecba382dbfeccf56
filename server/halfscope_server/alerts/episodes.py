"""Episodes as they are told: rows with ids, sentences and evidence.

Owns an episode's id and its row. Must not judge. Invariant: an id is a hash of rule, version, run, group, attempt and
first step, so the same trouble has the same id however often it is found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any

import msgspec

from halfscope_server.alerts.machine import Change, Machine
from halfscope_server.alerts.node import RuleOnNode
from halfscope_server.alerts.sentences import episode_text
from halfscope_server.query.format import plural
from halfscope_server.store.types import EpisodeRow, RunRow


class Teller:
    """Keeps what was told of open episodes, and collects what is to be told.

    Rows leave with `updated_us` 0 and nobody's acknowledgement: who saves them fills that in. A pending one that came
    to nothing is told as resolved without having fired.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._open: dict[str, EpisodeRow] = {}
        self._changed: dict[str, EpisodeRow] = {}

    def happened(
        self,
        run: RunRow,
        on: RuleOnNode,
        labels: Mapping[str, str],
        layer: str,
        machine: Machine,
        metric: str,
        change: Change,
    ) -> None:
        """Note a transition; the machine stands as it stood just then."""
        row = _row(run, on, labels, layer, machine, metric, self._url, resolved=change in ("resolved", "dropped"))
        if change == "dropped" and row.episode_id not in self._open and row.episode_id not in self._changed:
            return
        self._note(row)

    def tell(
        self, run: RunRow, on: RuleOnNode, labels: Mapping[str, str], layer: str, machine: Machine, metric: str
    ) -> EpisodeRow:
        """Note how an open episode stands, if it has gone on; gives its row."""
        row = _row(run, on, labels, layer, machine, metric, self._url, resolved=False)
        if self._open.get(row.episode_id) != row:
            self._note(row)
        return row

    def close_all(self, resolution: str, step: int, time_us: int, attempt: int) -> None:
        """Everything that is open is over."""
        for row in list(self._open.values()):
            self.close(row, resolution, step, time_us, attempt)

    def close_others(
        self, going_on: Collection[tuple[str, int]], known: Collection[str], step: int, time_us: int, attempt: int
    ) -> None:
        """Episodes of rules that changed or are gone are over.

        Args:
            going_on: (id, version) of the rules that look at this run.
            known: ids of all rules.
        """
        for row in list(self._open.values()):
            if (row.rule_id, row.rule_version) not in going_on:
                resolution = "rule changed" if row.rule_id in known else "rule deleted"
                self.close(row, resolution, step, time_us, attempt)

    def open_ids(self) -> set[str]:
        """Pending and firing ones."""
        return set(self._open)

    def take(self) -> list[EpisodeRow]:
        """What changed since it was last asked for."""
        changed, self._changed = self._changed, {}
        return list(changed.values())

    def close(self, row: EpisodeRow, resolution: str, step: int, time_us: int, attempt: int) -> None:
        """An episode is over.

        Args:
            step: newest step of this attempt; what happened after its last row is not over before it happened.
        """
        if row.attempt == attempt:
            step, time_us = max(step, row.last_step), max(time_us, row.last_us)
        self._note(
            replace(row, state="resolved", resolution=resolution, resolved_step=step, resolved_us=time_us)
        )  # fmt: skip

    def _note(self, row: EpisodeRow) -> None:
        if row.state == "resolved":
            self._open.pop(row.episode_id, None)
        else:
            self._open[row.episode_id] = row
        self._changed[row.episode_id] = row

    def state(self) -> dict[str, Any]:
        return {
            "open": [asdict(row) for row in self._open.values()],
            "changed": [asdict(row) for row in self._changed.values()],
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._open = {row["episode_id"]: EpisodeRow(**row) for row in state["open"]}
        self._changed = {row["episode_id"]: EpisodeRow(**row) for row in state["changed"]}


def _row(
    run: RunRow,
    on: RuleOnNode,
    labels: Mapping[str, str],
    layer: str,
    machine: Machine,
    metric: str,
    url: str,
    *,
    resolved: bool,
) -> EpisodeRow:
    rule = on.rule
    fired = machine.fired_step is not None
    named = layer or machine.worst_layer
    if machine.num_layers > 1 and fired:
        more = plural(machine.num_layers - 1, "layer")
        evidence = {**machine.evidence, "note": f"{more} more beyond the threshold at that step"}
    else:
        evidence = machine.evidence
    text = episode_text(
        rule,
        run=run.name,
        project=run.project,
        layer=named,
        rank=on.rank,
        labels=labels,
        value=machine.value,
        first_step=machine.first_step,
        step=machine.fired_step if machine.fired_step is not None else machine.last_step,
        url=url,
    )
    return EpisodeRow(
        episode_id=_id(run, on, labels, layer, machine),
        rule_id=rule.id,
        rule_version=on.version,
        run_id=run.run_id,
        rule_name=rule.name,
        metric=metric,
        severity=rule.severity,
        layer=named,
        rank=on.rank,
        labels=dict(labels),
        attempt=machine.attempt,
        state="resolved" if resolved else "firing" if fired else "pending",
        first_step=machine.first_step,
        first_us=machine.first_us,
        fired_step=machine.fired_step,
        fired_us=machine.fired_us,
        last_step=machine.last_step,
        last_us=machine.last_us,
        resolved_step=machine.resolved_step if resolved else None,
        resolved_us=machine.resolved_us if resolved else None,
        resolution="cleared" if resolved else "",
        value=machine.value,
        worst=machine.worst,
        threshold=rule.threshold,
        text=text,
        evidence=evidence,
        updated_us=0,
    )


def _id(run: RunRow, on: RuleOnNode, labels: Mapping[str, str], layer: str, machine: Machine) -> str:
    key = [
        on.rule.id,
        on.version,
        run.run_id,
        layer,
        on.rank,
        sorted(labels.items()),
        machine.attempt,
        machine.first_step,
    ]
    return hashlib.blake2b(msgspec.msgpack.encode(key), digest_size=16).hexdigest()
