"""Bars in a terminal, lines without one."""

from __future__ import annotations

import io
import math
import re

from halfscope_server.cli.progress import Painter, RunProgress, line


def test_line_says_where_a_run_stands() -> None:
    """Name, bar, share, steps, loss and accuracy; the state only when there is something to say."""
    run = RunProgress(name="fp16-cnn", step=1500, total=3000, loss=0.12345, accuracy=0.973, state="training")
    assert line(run, name_width=10, width=200) == (
        "fp16-cnn    " + "█" * 12 + "░" * 12 + "   50%  step 1,500/3,000  loss 0.1235  accuracy 97.3%"
    )


def test_nan_loss_is_written_out() -> None:
    """The troubled run's loss may be NaN, and that is what it says."""
    assert "loss NaN" in line(RunProgress(name="a", step=1, total=2, loss=math.nan), name_width=1, width=200)


def test_line_fits_the_terminal() -> None:
    """A wrapped line would break the redrawing."""
    run = RunProgress(name="a" * 100, step=1, total=2, loss=1.0, state="training")
    assert len(line(run, name_width=100, width=40)) == 40


def test_terminal_is_redrawn_in_place() -> None:
    """The second picture goes over the first: up as many lines as there were."""
    out = io.StringIO()
    painter = Painter(out=out, is_terminal=True)
    runs = [RunProgress(name="a", total=10), RunProgress(name="b", total=10)]
    painter.paint(runs)
    first = out.getvalue()
    painter.paint(runs)
    assert "\x1b[2F" not in first
    assert out.getvalue()[len(first) :].startswith("\x1b[2F")


def test_without_a_terminal_only_quarters_are_mentioned_and_nothing_is_escaped() -> None:
    """A log file gets a handful of lines per run."""
    out = io.StringIO()
    painter = Painter(out=out, is_terminal=False)
    run = RunProgress(name="a", total=100, state="training")
    for step in range(1, 101):
        run.step = step
        painter.paint([run])
    run.state = "done"
    painter.paint([run])
    assert "\x1b" not in out.getvalue()
    mentioned = [match[0] for text in out.getvalue().splitlines() if (match := re.search(r"\d+%|done", text))]
    assert mentioned == ["1%", "25%", "50%", "75%", "100%", "100%"]
    assert out.getvalue().rstrip().endswith("done")
