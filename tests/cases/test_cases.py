"""Each case program under `halfscope run`: undisturbed, and recorded as a perfect monitor would as far as this goes."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from halfscope_server.alerts.presets import presets

from tests.cases import alerts, expectations
from tests.cases.mapping import EVENTS, METRICS, OTHERS, SEVERITIES, Elsewhere, Found, split_metric
from tests.cases.recordings import Recording, read
from tests.helpers.journals import as_updates, payloads
from tests.helpers.preloaded import Preloaded
from tests.helpers.records import evaluate

HERE = Path(__file__).parent
ORACLE: dict[str, Any] = json.loads((HERE / "oracle.json").read_text(encoding="utf-8"))
PROGRAMS = sorted(path.stem for path in (HERE / "programs").glob("c*.py"))
VARIATIONS = [name for name in PROGRAMS if name not in ORACLE]
RUNS_WITHOUT = [
    *("c32", "c33", "c45", "c47", "c49", "c50", "c51", "c53", "c55", "c56", "c58", "c59", "c60", "c61", "c64", "c65"),
    *("c76", "c77", "c82", "c84"),
]
"""Nothing is trained in these programs' own process: their data is given to the public functions."""
TRAINED = [name for name in ORACLE if name not in RUNS_WITHOUT]
NOTICE = re.compile(r"halfscope: nothing was recorded: .*\n")


@dataclass(frozen=True)
class Outcomes:
    """Where the driver has put them."""

    folder: Path

    def text(self, way: str, case: str, kind: str = "out") -> str:
        text = (self.folder / way / f"{case}.{kind}").read_text(encoding="utf-8")
        return re.sub(r"0x[0-9a-f]+", "0x", text)

    def result(self, way: str, case: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text(way, case, "json"))
        return found

    def runs(self, case: str) -> list[Recording]:
        return read(self.folder / "journals" / case)


@pytest.fixture(scope="module")
def outcomes(python: Preloaded, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """All programs, alone and watched, in forks of one process."""
    folder = tmp_path_factory.mktemp("cases")
    done = python.run([str(HERE / "driver.py"), str(folder), *PROGRAMS], strict=False, timeout_s=600)
    assert done.returncode == 0, done.stderr
    return Outcomes(folder)


# ---- undisturbed --------------------------------------------------------------------------------


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", PROGRAMS)
def test_a_program_does_the_same_as_alone(outcomes: Outcomes, case: str) -> None:
    """Every printed fact to the last bit, standard error too; and nothing of ours is left on torch or its objects."""
    assert outcomes.result("alone", case) == {"exit_code": 0, "left": []}, outcomes.text("alone", case, "err")
    assert outcomes.result("watched", case) == {"exit_code": 0, "left": []}, outcomes.text("watched", case, "err")
    assert outcomes.text("watched", case) == outcomes.text("alone", case)
    assert NOTICE.sub("", _quiet(outcomes.text("watched", case, "err"))) == _quiet(outcomes.text("alone", case, "err"))


def _quiet(text: str) -> str:
    """Without torch's own log lines, which carry times."""
    return re.sub(r"^\[rank0\]:W.*\n", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("case", ORACLE)
def test_a_program_shows_the_mechanism_that_was_reported(outcomes: Outcomes, case: str) -> None:
    """The facts it prints are those that were observed when the case was written down."""
    observed = json.loads(outcomes.text("alone", case))
    assert observed.pop("reproduced") is True
    assert set(observed) == set(ORACLE[case]["observed"])
    for name, value in ORACLE[case]["observed"].items():
        assert _alike(observed[name], value), name


def _alike(value: Any, other: Any) -> bool:
    if isinstance(other, float):
        return isinstance(value, (int, float)) and math.isclose(value, other, rel_tol=1e-4)
    if isinstance(other, str):
        return re.sub(r"0x[0-9a-f]+", "0x", other) == value
    if isinstance(other, dict):
        return value.keys() == other.keys() and all(_alike(value[key], other[key]) for key in other)
    if isinstance(other, list):
        return len(value) == len(other) and all(map(_alike, value, other))
    return bool(value == other)


@pytest.mark.parametrize("case", VARIATIONS)
def test_a_variation_shows_its_mechanism(outcomes: Outcomes, case: str) -> None:
    """As far as its program checks that itself."""
    assert json.loads(outcomes.text("alone", case))["reproduced"] is True


# ---- recorded -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", TRAINED)
def test_what_happened_is_recorded(outcomes: Outcomes, case: str) -> None:
    """Every event that the oracle expects of a kind that this version tells: how often, when, where, how grave."""
    runs = outcomes.runs(case)
    for expected in ORACLE[case]["expect"].get("events", []):
        finder = EVENTS[expected["kind"]]
        if not isinstance(finder, Elsewhere):
            _check_event(expected, [found for found in finder(runs) if _concerns(case, expected, found)])


def _concerns(case: str, expected: dict[str, Any], found: Found) -> bool:
    where = expected.get("where")
    if where is None or isinstance(where, list):
        return True
    run = expectations.RUN_OF.get((case, where))
    return found.run == run if run is not None else any(name.endswith(where) for name in found.where)


def _check_event(expected: dict[str, Any], found: list[Found]) -> None:
    assert found, expected
    if "row" in expected:  # one of several happenings, each with its own step
        found = [each for each in found if each.step == expected["at"]]
        assert [each.row for each in found] == [expected["row"]]
    if "at" in expected:
        assert expected["at"] in {each.step for each in found}, expected
    if "by" in expected:
        assert min(each.step for each in found) <= expected["by"], expected
    if "n" in expected:
        assert len(found) == expected["n"], expected
    if isinstance(expected.get("where"), list):
        assert any(set(expected["where"]) <= set(each.where) for each in found), expected
    if "sev" in expected:
        assert all(each.severity in ("", SEVERITIES[expected["sev"]]) for each in found), expected


@pytest.mark.parametrize("case", TRAINED)
def test_values_are_recorded(outcomes: Outcomes, case: str) -> None:
    """Every metric that the oracle expects and that this version measures, exactly or within its bounds."""
    runs = outcomes.runs(case)
    for name, expected in ORACLE[case]["expect"].get("metrics", {}).items():
        base, at, of = split_metric(name)
        measure = METRICS[base]
        if isinstance(measure, Elsewhere):
            continue
        value = measure(runs, at, of)
        if isinstance(expected, list):
            assert expected[0] <= value <= expected[1], name
        else:
            assert value == pytest.approx(expected, rel=1e-9), name


@pytest.mark.parametrize("case", [*TRAINED, *VARIATIONS])
def test_every_run_ends_well(outcomes: Outcomes, case: str) -> None:
    """Something was recorded, no part of the agent failed, and each run ended as finished."""
    runs = outcomes.runs(case)
    assert runs
    assert not [event for run in runs for event in run.events("agent_degraded", "unwatched_scaler", "update_missing")]
    assert {run.recorded.end.outcome for run in runs if run.recorded.end is not None} == {"finished"}


@pytest.mark.parametrize("case", TRAINED)
def test_nothing_is_claimed_that_is_not_so(outcomes: Outcomes, case: str) -> None:
    """A false alarm is a failure: what the oracle forbids is not found, nor a number that it calls wrong."""
    runs = outcomes.runs(case)
    for forbidden in ORACLE[case]["expect"].get("forbid", []):
        kind, _, detail = forbidden.partition(":")
        if kind in OTHERS or kind == "tool":
            continue
        if kind == "value":
            assert not any(math.isclose(value, float(detail), rel_tol=1e-3) for value in _all_values(runs)), forbidden
        elif kind == "grad_overflow":
            assert not [event for run in runs for event in run.events("skip", "nonfinite_applied", "bad_streak")]
        else:
            finder = EVENTS[kind]
            assert not isinstance(finder, Elsewhere), forbidden
            assert not list(finder(runs)), forbidden


def _all_values(runs: list[Recording]) -> list[float]:
    points = [value for run in runs for column in run.recorded.points.values() for value in column.values()]
    frames = [frame for run in runs for frame in run.frames.values()]
    return points + [float(sketch.norm) for frame in frames for sketch in frame.layers.values()]


@pytest.mark.parametrize("case", sorted(expectations.MORE))
def test_more_is_recorded_than_the_oracle_asks(outcomes: Outcomes, case: str) -> None:
    """What is particular to a case or variation; see expectations.py."""
    expectations.MORE[case](outcomes.runs(case), json.loads(outcomes.text("alone", case)))


@pytest.mark.parametrize("case", RUNS_WITHOUT)
def test_a_program_that_trains_nothing_is_told_so(outcomes: Outcomes, case: str) -> None:
    """No run is begun for it, and one line on standard error says that nothing was recorded."""
    assert outcomes.runs(case) == []
    assert len(NOTICE.findall(outcomes.text("watched", case, "err"))) == 1


# ---- the table ----------------------------------------------------------------------------------


def _rows() -> dict[str, tuple[str, ...]]:
    rows = re.findall(r"^\| (c\d+) \| (.*?) \| (.*?) \| (.*?) \|$", (HERE / "README.md").read_text("utf-8"), re.M)
    return {row[0]: row[1:] for row in rows}


def test_the_table_has_every_case_and_program() -> None:
    """README.md has one row per case and names every variation, and every program belongs to a case."""
    rows = _rows()
    assert set(rows) == set(ORACLE)
    assert {name.split("_")[0] for name in PROGRAMS} == set(ORACLE)
    named = {name for row in rows.values() for name in re.findall(r"`(c\d+_\w+)`", row[1])}
    assert named == set(VARIATIONS)


def test_the_table_lists_what_a_later_version_adds() -> None:
    """The last column names exactly what the oracle expects of a case and the mapping has nothing for."""
    for case, row in _rows().items():
        expect = ORACLE[case]["expect"]
        names = {event["kind"]: EVENTS[event["kind"]] for event in expect.get("events", [])}
        names |= {split_metric(name)[0]: METRICS[split_metric(name)[0]] for name in expect.get("metrics", {})}
        names |= {name: OTHERS[name] for name in expect.get("tool", {}) if name in OTHERS}
        if "advice_any" in expect:
            names["advice"] = OTHERS["advice"]
        later = {name for name, found in names.items() if isinstance(found, Elsewhere) and found.why == "later"}
        assert set(re.findall(r"`([^`]+)`", row[2])) == later, case


@pytest.mark.parametrize("case", sorted(alerts.EXPECTED))
def test_the_right_alerts_are_raised(outcomes: Outcomes, case: str) -> None:
    """Of all presets those that the case is about, each at the step at which it is so for the first time."""
    rules = [preset.rule for preset in presets()]
    first: dict[str, int] = {}
    for records in payloads(outcomes.folder / "journals" / case):
        run, updates = as_updates(records)
        for episode in evaluate([[update] for update in updates], rules, run=run):
            assert episode.fired_step is not None
            first.setdefault(episode.rule_id, episode.fired_step)
    assert first == alerts.EXPECTED[case]
