"""The bench runner prints what it promises. No time is asserted anywhere: that is what reading its output is for."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from scipy import stats

from tests.bench.__main__ import main
from tests.bench.ingest import quantile
from tests.bench.report import MARKS, Measurement, middle, middle_error, summary
from tests.helpers.preloaded import Preloaded

ROOT = Path(__file__).resolve().parents[2]


def numbers(output: str) -> dict[str, tuple[float, str]]:
    """Name to (value, unit) of every line that is no comment."""
    found = {}
    for line in output.splitlines():
        if not line.startswith("#"):
            match = re.fullmatch(r"([a-z0-9_.]+) (\S+) (\S+)", line)
            assert match, f"not `name value unit`: {line!r}"
            found[match[1]] = (float(match[2]), match[3])
    return found


QUICK: dict[str, dict[str, str]] = {
    "server.series_1m*": {"server.series_1m_ms": "ms", "server.series_1m.points_ms": "ms"},
    "server.layer*": {"server.layers_heatmap_ms": "ms", "server.bytes_per_layer_frame": "bytes"},
    "server.ingest.points*": {"server.ingest.points_per_s": "points/s"},
    "server.ingest.ack*": {"server.ingest.ack_p50_ms": "ms", "server.ingest.ack_p99_ms": "ms"},
    "agent.mlp.*": {"agent.mlp.default.ratio": "ratio", "agent.mlp.default.extra_us": "us"},
}
RUNNER = """
import subprocess, sys, types
from tests.bench import server_process
from tests.bench.__main__ import main
from tests.helpers.preloaded import serving

def start(command, *, env, stdin, stdout, stderr):
    return serving().start(command[1:], env=env, stdout=stdout.fileno(), stderr=stdout.fileno(), strict=False)

server_process.subprocess = types.SimpleNamespace(**{**vars(subprocess), "Popen": start})
for pattern in sys.argv[1:]:
    assert main(["--quick", "--only", pattern]) == 0
    print("# done", flush=True)
"""
"""Its servers are forks: how long one takes to start is no number of the bench."""


@pytest.fixture(scope="module")
def quick_runs(python: Preloaded) -> dict[str, str]:
    """What a quick run of each pattern prints; in one process, which loads what all of them need once."""
    done = python.run(["-c", RUNNER, *QUICK], cwd=ROOT, strict=False, timeout_s=170.0)
    assert done.returncode == 0, done.stderr
    return dict(zip(QUICK, done.stdout.split("# done\n"), strict=False))


@pytest.mark.slow
@pytest.mark.parametrize(("pattern", "expected"), QUICK.items())
def test_quick_run_prints_name_value_unit_and_the_marks_last(
    quick_runs: dict[str, str], pattern: str, expected: dict[str, str]
) -> None:
    """Every number has its line, positive but for differences, and the marks come after all of them."""
    found = numbers(quick_runs[pattern])
    for name, unit in expected.items():
        assert found[name][1] == unit
        assert found[name][0] > 0 or name.endswith("extra_us")
    lines = quick_runs[pattern].splitlines()
    marks = lines.index("# marks")
    assert all(line.startswith("#   ") for line in lines[marks + 1 :])
    assert {name for name in expected if any(f" {name} " in line for line in lines[marks + 1 :])}


def test_list_names_what_the_pages_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Every number with a mark, and every one that docs/performance.md names in full, is one the runner knows."""
    assert main(["--list"]) == 0
    names = set(capsys.readouterr().out.split())
    assert set(MARKS) <= names
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(server\.[a-z0-9_.]+)`", page))
    assert named
    assert named <= names


def test_unknown_pattern_says_how_to_find_names(capsys: pytest.CaptureFixture[str]) -> None:
    """A glob that matches nothing ends with exit code 2 and a hint."""
    with pytest.raises(SystemExit) as leaving:
        main(["--only", "nothing.*"])
    assert leaving.value.code == 2
    assert "--list" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        ("agent.gpt.default.ratio", 1.009, "met"),
        ("agent.gpt.default.ratio", 1.011, "missed"),
        ("server.ingest.points_per_s", 999_999.0, "missed"),
        ("server.ingest.points_per_s", 1_000_000.0, "met"),
    ],
)
def test_summary_holds_each_number_against_its_mark(name: str, value: float, verdict: str) -> None:
    """Cost is met at or under its mark, throughput at or above it, and what was not measured is said to be so."""
    lines = summary([Measurement(name=name, value=value, unit="x")])
    (line,) = [line for line in lines if f" {name} " in line]
    assert line.split()[1] == verdict
    assert sum("not run" in line for line in lines) == len(MARKS) - 1


@pytest.mark.parametrize(
    ("values", "share", "expected"), [([1.0], 0.99, 1.0), ([1.0, 2.0], 0.5, 1.0), (list(range(1, 101)), 0.99, 99)]
)
def test_quantile_is_the_value_that_the_share_does_not_exceed(
    values: list[float], share: float, expected: float
) -> None:
    """The nearest-rank quantile: no interpolation between latencies that occurred."""
    assert quantile(values, share) == expected


def test_the_middle_of_values_and_its_error_are_those_of_a_trimmed_mean() -> None:
    """A tenth is cut at each end, and what was cut is moved inwards for the error, as SciPy has both."""
    values = [math.sin(number) ** 5 + number % 7 for number in range(43)]
    cut = len(values) // 10
    assert middle(values) == pytest.approx(float(stats.trim_mean(values, 0.1)))
    error = stats.mstats.trimmed_stde(values, limits=(cut / 43, cut / 43))
    assert middle_error(values) == pytest.approx(float(error), rel=1e-9)
    assert math.isnan(middle_error([1.0, 2.0]))
