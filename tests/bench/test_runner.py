"""The bench runner prints what it promises. No time is asserted anywhere: that is what reading its output is for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.bench", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def numbers(output: str) -> dict[str, tuple[float, str]]:
    """Name to (value, unit) of every line that is no comment."""
    found = {}
    for line in output.splitlines():
        if not line.startswith("#"):
            match = re.fullmatch(r"([a-z0-9_.]+) (\S+) (\S+)", line)
            assert match, f"not `name value unit`: {line!r}"
            found[match[1]] = (float(match[2]), match[3])
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("server.series_1m*", {"server.series_1m_ms": "ms", "server.series_1m.points_ms": "ms"}),
        ("server.ingest.points*", {"server.ingest.points_per_s": "points/s"}),
        ("server.ingest.ack*", {"server.ingest.ack_p50_ms": "ms", "server.ingest.ack_p99_ms": "ms"}),
        ("agent.mlp.*", {"agent.mlp.default.ratio": "ratio", "agent.mlp.default.extra_us": "us"}),
    ],
)
def test_quick_run_prints_name_value_unit_and_the_marks_last(pattern: str, expected: dict[str, str]) -> None:
    """Every number has its line, positive but for differences, and the marks come after all of them."""
    done = bench("--quick", "--only", pattern)
    assert done.returncode == 0, done.stderr
    found = numbers(done.stdout)
    for name, unit in expected.items():
        assert found[name][1] == unit
        assert found[name][0] > 0 or name.endswith("extra_us")
    lines = done.stdout.splitlines()
    marks = lines.index("# marks")
    assert all(line.startswith("#   ") for line in lines[marks + 1 :])
    assert {name for name in expected if any(f" {name} " in line for line in lines[marks + 1 :])}


def test_list_names_what_the_pages_name() -> None:
    """Every number with a mark, and every one that docs/performance.md names in full, is one the runner knows."""
    done = bench("--list")
    assert done.returncode == 0, done.stderr
    names = set(done.stdout.split())
    from tests.bench.report import MARKS

    assert set(MARKS) <= names
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(server\.[a-z0-9_.]+)`", page)) <= names


def test_unknown_pattern_says_how_to_find_names() -> None:
    """A glob that matches nothing ends with exit code 2 and a hint."""
    done = bench("--only", "nothing.*")
    assert done.returncode == 2
    assert "--list" in done.stderr
