"""What a run was started with, as sections of keys and values in words.

Owns the Config tab. Must not import plotly. Invariant: everything the agent sent is shown somewhere: a fact or variable
nobody wrote a line for here stands under its own key.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from halfscope_server.query.format import integer, number, plural, power_of_two, short, size_bytes, utc
from halfscope_server.query.states import error_text, precision_of
from halfscope_server.store.types import RunRow

MAX_ENTRIES = 500
MAX_VALUE_CHARS = 2000
_WORDED_FACTS = ("precision", "memory", "scalers", "optimizers", "parameters", "samples_source", "demo")
_SOURCES = {"declared": "given by run.step()", "inferred": "inferred from the leading size of the model's first input"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """Mirrors the API."""

    key: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSection:
    """Mirrors the API."""

    title: str
    entries: list[ConfigEntry]


def config_sections(row: RunRow) -> list[ConfigSection]:
    """The Config tab of a run, without sections that would be empty."""
    facts = row.facts
    sections = [
        ConfigSection(title="Run", entries=_run(row)),
        ConfigSection(title="Precision", entries=_precision(row)),
        ConfigSection(title="Loss scaler", entries=_each(facts.get("scalers"), _scaler)),
        ConfigSection(title="Optimizer", entries=_each(facts.get("optimizers"), _optimizer)),
        ConfigSection(title="Model", entries=_model(facts)),
        ConfigSection(title="Configuration", entries=list(_flat(row.config))),
        ConfigSection(title="Environment", entries=list(_flat(_with_command(row.environment)))),
        ConfigSection(
            title="More facts", entries=list(_flat({k: v for k, v in facts.items() if k not in _WORDED_FACTS}))
        ),
    ]
    return [section for section in sections if section.entries]


def _with_command(environment: Mapping[str, Any]) -> Mapping[str, Any]:
    """The command line as one would type it."""
    command = environment.get("command")
    if not isinstance(command, list | tuple):
        return environment
    return {**environment, "command": shlex.join(str(argument) for argument in command)}


def _run(row: RunRow) -> list[ConfigEntry]:
    entries = [
        ConfigEntry(key="name", value=row.name),
        ConfigEntry(key="project", value=row.project),
        ConfigEntry(key="id", value=row.run_id),
        ConfigEntry(key="tags", value=", ".join(row.tags)),
        ConfigEntry(key="started", value=utc(row.created_us)),
        ConfigEntry(key="restarts", value=integer(max(0, row.num_attempts - 1))),
        ConfigEntry(key="ranks", value=integer(row.world_size)),
    ]
    if row.ended_us is not None:
        entries.append(ConfigEntry(key="ended", value=utc(row.ended_us), note=row.outcome.replace("_", " ")))
    if row.error_type:
        entries.append(ConfigEntry(key="error", value=error_text(row.error_type, row.error_message)[:MAX_VALUE_CHARS]))
    return [entry for entry in entries if entry.value]


def _precision(row: RunRow) -> list[ConfigEntry]:
    label = precision_of(row)
    note = "" if label else "known at the first forward pass"
    entries = [ConfigEntry(key="precision", value=label or "–", note=note)]
    source = str(row.facts.get("samples_source") or "")
    if source:
        entries.append(ConfigEntry(key="samples per step", value=source, note=_SOURCES.get(source, "")))
    return entries


def _each(items: object, describe: Any) -> list[ConfigEntry]:
    if not isinstance(items, list | tuple):
        return []
    found: list[ConfigEntry] = []
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            continue
        name = str(item.get("name") or index + 1)
        prefix = f"{name}: " if len(items) > 1 else ""
        found += [ConfigEntry(key=prefix + e.key, value=e.value, note=e.note) for e in describe(item)]
    return found


def _scaler(item: Mapping[str, Any]) -> Iterable[ConfigEntry]:
    yield ConfigEntry(key="class", value=str(item.get("class", "–")))
    if item.get("enabled") is False:
        yield ConfigEntry(
            key="enabled", value="no", note="a disabled scaler does nothing; the run is shown as one without"
        )
    for key, words in (("init_scale", power_of_two), ("growth_factor", number), ("backoff_factor", number)):
        if (value := item.get(key)) is not None and isinstance(value, int | float):
            yield ConfigEntry(key=key, value=words(float(value)))
    if isinstance(interval := item.get("growth_interval"), int):
        yield ConfigEntry(key="growth_interval", value=plural(interval, "clean step"))
    known = ("name", "class", "enabled", "init_scale", "growth_factor", "backoff_factor", "growth_interval")
    yield from _flat({k: v for k, v in item.items() if k not in known})


def _optimizer(item: Mapping[str, Any]) -> Iterable[ConfigEntry]:
    yield ConfigEntry(key="class", value=str(item.get("class", "–")))
    for key in ("fused", "foreach"):
        if key in item:
            yield ConfigEntry(key=key, value={True: "yes", False: "no", None: "default"}.get(item[key], str(item[key])))
    if isinstance(num := item.get("num_parameters"), int):
        yield ConfigEntry(key="parameters", value=integer(num))
    if isinstance(num := item.get("num_groups"), int):
        yield ConfigEntry(key="groups", value=integer(num))
    known = ("name", "class", "fused", "foreach", "num_parameters", "num_groups")
    yield from _flat({k: v for k, v in item.items() if k not in known})


def _model(facts: Mapping[str, Any]) -> list[ConfigEntry]:
    entries: list[ConfigEntry] = []
    parameters = facts.get("parameters")
    if isinstance(parameters, Mapping):
        if isinstance(num := parameters.get("num_elements"), int):
            entries.append(ConfigEntry(key="parameters", value=short(num), note=integer(num)))
        if isinstance(num := parameters.get("num_tensors"), int):
            entries.append(ConfigEntry(key="parameter tensors", value=integer(num)))
        if isinstance(num := parameters.get("num_trainable"), int):
            entries.append(ConfigEntry(key="trainable", value=integer(num)))
    memory = facts.get("memory")
    if isinstance(memory, Mapping):
        for key, value in memory.items():
            if isinstance(value, int):
                words = str(key).removesuffix("_bytes").replace("_", " ") + " memory"
                entries.append(ConfigEntry(key=words, value=size_bytes(value), note=f"{integer(value)} bytes"))
    return entries


def _flat(values: object, prefix: str = "", depth: int = 0) -> Iterable[ConfigEntry]:
    """Nested mappings as dotted keys; lists and what lies too deep as text."""
    if isinstance(values, Mapping) and values and depth < 6:
        num_left = MAX_ENTRIES
        for key, value in values.items():
            for entry in _flat(value, f"{prefix}.{key}" if prefix else str(key), depth + 1):
                if num_left == 0:
                    note = f"only the first {MAX_ENTRIES} entries are shown"
                    yield ConfigEntry(key=prefix or "…", value="…", note=note)
                    return
                num_left -= 1
                yield entry
    elif prefix:
        yield ConfigEntry(key=prefix, value=_text(values))


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        # As Python writes it: a configuration is shown as it was given, not rounded.
        return repr(value)
    text = ", ".join(_text(item) for item in value) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + "…"
