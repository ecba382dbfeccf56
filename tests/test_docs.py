"""What the pages list is what the code has: the README's program, settings, series, events, commands, links."""

from __future__ import annotations

import argparse
import json
import os
import re
from pathlib import Path

import pytest
import typer.main
from halfscope import __main__ as agent_cli
from halfscope.config import journal_directory
from halfscope.probes.catalog import specs
from halfscope.record.layout import StreamPlace
from halfscope.record.reader import JournalReader
from halfscope.send.fork import EVENT_KIND
from halfscope.wire import messages
from halfscope.wire.codec import decode_record
from halfscope.wire.messages import End, Record
from halfscope_server.alerts.aggregations import aggregations
from halfscope_server.alerts.metrics import metrics
from halfscope_server.alerts.presets import presets
from halfscope_server.alerts.rule import Rule
from halfscope_server.alerts.yaml import from_yaml
from halfscope_server.cli import app as server_app
from halfscope_server.query.export import event_row
from halfscope_server.query.kinds import KINDS
from halfscope_server.settings import table
from halfscope_server.store.types import EventRow

from tests.helpers.preloaded import Preloaded

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def first_cells(text: str) -> list[str]:
    """What stands in code quotes at the beginning of a table's rows."""
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def section(text: str, heading: str) -> str:
    """A section without its subsections' headings' siblings: from its heading to the next of the same level."""
    level = heading.split(" ")[0]
    return re.split(rf"^{level} ", text.split(f"{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def source_of(package: str) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / package).rglob("*.py")))


# ---- README ----------------------------------------------------------------------------------


def journal(directory: Path) -> list[Record]:
    """All records of the one journal below a directory."""
    (stream,) = directory.glob("*/*")
    place = StreamPlace(directory=directory, run_id=stream.parent.name, stream=stream.name)
    reader = JournalReader(place)
    try:
        return [decode_record(entry.payload) for entry in reader.read(final=True)]
    finally:
        reader.close()


def test_readme_program_runs_as_it_stands(python: Preloaded, tmp_path: Path) -> None:
    """The program in the README trains, is watched, and its journal ends as finished after its last step."""
    (program,) = re.findall(r"```python\n(.*?)```", page("README.md"), re.DOTALL)
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HALFSCOPE_")}
    environment |= {"HALFSCOPE_HOME": str(tmp_path / "home"), "HALFSCOPE_MODE": "offline"}
    done = python.run(["train.py"], cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    records = journal(tmp_path / "home" / "journals")
    (end,) = [record for record in records if isinstance(record, End)]
    assert (end.outcome, end.step) == ("finished", 49)


def test_readme_program_needs_three_lines_of_ours() -> None:
    """Beside `import halfscope` the program has one call of `watch` and one of `step`, as the README says."""
    (program,) = re.findall(r"```python\n(.*?)```", page("README.md"), re.DOTALL)
    ours = [line for line in program.splitlines() if re.search(r"\bhalfscope\b|\brun\b", line)]
    assert [line.rsplit("#", 1)[1].strip()[0] for line in ours] == ["1", "2", "3"]


@pytest.mark.parametrize("target", ["demo", "test", "bench", "setup", "format"])
def test_make_targets_that_pages_name_exist(target: str) -> None:
    """Each `make` command that a page names is a documented target of the Makefile."""
    assert re.search(rf"^{target}:.*##", page("Makefile"), re.MULTILINE)


def test_every_make_command_on_a_page_is_a_target() -> None:
    """No page tells to run a target that is not there."""
    named = {name for path in PAGES for name in re.findall(r"(?:^|`)make ([a-z]+)", page(str(path)), re.MULTILINE)}
    targets = set(re.findall(r"^([a-z-]+):.*##", page("Makefile"), re.MULTILINE))
    assert named
    assert named <= targets


# ---- settings --------------------------------------------------------------------------------


def test_server_settings_are_listed_word_for_word() -> None:
    """docs/settings.md has the server's table of settings, row by row, as the code words it."""
    listed = re.findall(
        r"^\| `(HALFSCOPE_\w+)` \| (.*?) ?\| (.*) \|$", section(page("docs/settings.md"), "## Server"), re.M
    )
    assert [(name, default.strip(), text) for name, default, text in listed] == table()


def test_agent_settings_are_listed() -> None:
    """The agent's table has every HALFSCOPE_ variable that its code reads, and no other."""
    code = source_of("agent/halfscope")
    read = set(re.findall(r"[\"'](HALFSCOPE_[A-Z_]+)[\"']", code))
    assert set(first_cells(section(page("docs/settings.md"), "## Agent"))) == read


def test_every_variable_on_a_page_exists() -> None:
    """A HALFSCOPE_ variable that any page names is read by the agent, the server, the build or the compose file."""
    named = {name for path in PAGES for name in re.findall(r"HALFSCOPE_[A-Z]+(?:_[A-Z]+)*", path.read_text("utf-8"))}
    known = set(re.findall(r"HALFSCOPE_[A-Z]+(?:_[A-Z]+)*", source_of("agent") + source_of("server")))
    known |= set(re.findall(r"HALFSCOPE_[A-Z_]+", page("hatch_build.py") + page("docker-compose.yml")))
    assert named <= known


# ---- series and events -----------------------------------------------------------------------


def test_series_are_listed() -> None:
    """docs/numerics.md has a row for every built-in series with its unit, and for no other."""
    rows = re.findall(r"^\| `([a-z]+\.?\w*)` \| ([^|]+) \|", section(page("docs/numerics.md"), "## The series"), re.M)
    assert {name for name, _ in rows} == set(specs())
    for name, unit in rows:
        declared = specs()[name].unit
        assert unit.strip() in (declared, {"": "–"}.get(declared), "1", "0/1"), f"{name} has the unit {declared!r}"


def test_events_are_listed() -> None:
    """docs/events.md has a row for every kind that the server words or the agent emits, and for no other."""
    emitted = set(re.findall(r"\b_?event\(\s*(?:attempt, )?\"(\w+)\"", source_of("agent/halfscope")))
    assert {"skip", "bad_streak", "loss_nonfinite", "run_started"} <= emitted
    assert set(first_cells(page("docs/events.md"))) == set(KINDS) | emitted | {EVENT_KIND}


def test_wire_messages_are_listed() -> None:
    """docs/wire.md has a row for every record and frame."""
    kinds = [*messages.Record.__args__, *messages.AgentFrame.__args__, *messages.ServerFrame.__args__]
    assert set(first_cells(page("docs/wire.md"))) == {kind.__name__ for kind in kinds}


# ---- commands --------------------------------------------------------------------------------


def documented_commands() -> dict[str, set[str]]:
    """Command to the options that its section in docs/cli.md names."""
    parts = re.split(r"^### `halfscope (\S+).*`$", page("docs/cli.md"), flags=re.MULTILINE)
    return {name: set(re.findall(r"`(--[a-z-]+)`", text)) for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def real_commands() -> dict[str, set[str]]:
    """Command to the options that its parser takes."""
    found: dict[str, set[str]] = {"--version": set()}
    for action in agent_cli._parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, parser in action.choices.items():
                found[name] = {option for each in parser._actions for option in each.option_strings if option != "-h"}
    group = typer.main.get_command(server_app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        if not command.hidden:
            # `token` is a group of commands with a section of its own.
            params = [each for part in (command, *getattr(command, "commands", {}).values()) for each in part.params]
            found[name] = {option for each in params for option in each.opts if option.startswith("--")}
    return {
        name: {option for option in options if option.startswith("--") and option != "--help"}
        for name, options in found.items()
    }


def test_commands_and_options_are_listed() -> None:
    """docs/cli.md has every command with every option, and no other."""
    assert documented_commands() == real_commands()


def test_the_agent_offers_every_server_command() -> None:
    """What `halfscope` hands over to the server package is what that package has."""
    assert set(agent_cli.SERVER_COMMANDS) == set(typer.main.get_command(server_app).commands)  # type: ignore[attr-defined]


def test_events_are_exported_as_pages_show_them() -> None:
    """The examples of docs/events.md and docs/cli.md have the keys that an exported event has, and times like its."""
    place = {"run_id": "r", "stream": "s", "seq": 0, "rank": 0, "attempt": 0, "step": 1, "time_us": 500_000}
    row = event_row(EventRow(**place, kind="skip", severity="info", where=[], attributes={}), 0)  # type: ignore[arg-type]
    text = page("docs/events.md") + page("docs/cli.md")
    examples = [json.loads(line) for line in re.findall(r"^\{.*\}$", text, re.MULTILINE)]
    events = [example for example in examples if example["kind"] == "event"]
    assert len(events) == 2
    for event in events:
        assert list(event) == list(row)
        assert len(event["time"]) == len(row["time"])
        assert event["event"] in KINDS


# ---- pages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    """Every relative link of a page leads to a file of the repository, and its fragment to a heading there."""
    for target in re.findall(r"\]\(([^)#\s]*(?:#[\w-]+)?)\)", path.read_text(encoding="utf-8")):
        file, _, fragment = target.partition("#")
        goal = (path.parent / file) if file else path
        assert goal.exists(), f"{path.name} links to {target}"
        if fragment:
            headings = re.findall(r"^#+ (.+)$", goal.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert fragment in slugs, f"{path.name} links to {target}"


def test_journal_directory_is_where_the_pages_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Journals lie in `journals` under HALFSCOPE_HOME unless HALFSCOPE_DIR says otherwise."""
    monkeypatch.delenv("HALFSCOPE_DIR", raising=False)
    monkeypatch.setenv("HALFSCOPE_HOME", str(tmp_path))
    assert journal_directory() == tmp_path / "journals"


# ---- alerts -------------------------------------------------------------------------------------


def test_alerts_page_lists_what_rules_are_made_of() -> None:
    """Every field of a rule, derived metric and aggregation with its own words; and no other."""
    text = page("docs/alerts.md")
    fields = re.findall(
        r"`(\w+)`", "".join(re.findall(r"^\| (`[^|]+) \|", section(text, "## Rules").split("###")[0], re.M))
    )
    assert set(fields) == set(Rule.model_fields) - {"preset"}
    assert first_cells(section(text, "### Derived metrics")) == list(metrics())
    assert first_cells(section(text, "### Aggregations")) == list(aggregations())
    for item in (*metrics().values(), *aggregations().values()):
        assert item.text in text, item.id
    example = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert example is not None
    assert from_yaml(example[1]).problems == ()


def test_alerts_page_lists_every_preset_with_its_sentence_and_reason() -> None:
    """Threshold and why, as the page of rules shows them."""
    rows = section(page("docs/alerts.md"), "### Presets")
    assert first_cells(rows) == [preset.rule.id for preset in presets()]
    for preset in presets():
        row = f"| `{preset.rule.id}` | {preset.rule.severity} | {preset.sentence} | {preset.rule.reason} |"
        assert row in rows
