"""Comparisons from Python and the command line: what the server says of some runs, as data, text and HTML.

Standard library only. Must not import torch or numpy. Invariant: nothing is worked out here; every number and sentence
is the server's.
"""

from __future__ import annotations

import html
import json
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

from halfscope.login import fetch
from halfscope.send.endpoint import Endpoint, resolve

if TYPE_CHECKING:
    from halfscope.instrument.run import Run

TIMEOUT_S = 120.0
"""Long runs with many layers are read when somebody first asks."""
MAX_BYTES = 256 << 20
FRAME_PX = 900

Align = Literal["attempts", "applied", "samples", "tokens", "time"]


class CompareError(Exception):
    """The server could not be asked, or refused; the text says what to do."""


class Comparison:
    """What a server says of some runs. Shows itself whole in a notebook."""

    def __init__(self, report: Mapping[str, Any], endpoint: Endpoint, query: Mapping[str, str]) -> None:
        self.report = report
        """As `GET /api/v1/compare` answers: members, fairness, quality, cost, stability, numerics, verdicts."""
        self._endpoint, self._query = endpoint, query
        self._html: str | None = None

    @property
    def sentence(self) -> str:
        """The verdict."""
        return str(self.report["sentence"])

    @property
    def html(self) -> str:
        """The report as one HTML file, with its figures; it needs no network.

        Raises:
            CompareError: the server cannot be asked any more.
        """
        if self._html is None:
            self._html = _get(self._endpoint, "/api/v1/compare/report.html", self._query).decode()
        return self._html

    def save(self, path: str | Path) -> Path:
        """Write the report: the data where the name ends in .json, else the HTML file.

        Raises:
            CompareError: the server cannot be asked any more.
            OSError: the file cannot be written.
        """
        target = Path(path)
        text = json.dumps(self.report, indent=2) if target.suffix == ".json" else self.html
        target.write_text(text, encoding="utf-8")
        return target

    def text(self) -> str:
        """The verdict in lines, with its reasons, its limits, and what was not the same. Whatever runs are called, a
        terminal shows it as it stands."""
        names = {member["run"]: f"{member['letter']} {member['name']}" for member in self.report["members"]}
        lines = [self.sentence]
        for verdict in self.report["verdicts"]:
            lines += ["", f"{names[verdict['run']]}: {verdict['sentence']}"]
            lines += [f"  - {' '.join(filter(None, (r['text'], r['advice'])))}" for r in verdict["reasons"]]
            lines += [f"  rests on: {limit}" for limit in verdict["limits"]]
        fairness = self.report["fairness"]
        counts = ", ".join(f"{fairness[f'num_{state}']} {state}" for state in ("same", "different", "unknown"))
        lines += ["", f"Fairness: {counts}"]
        lines += [
            f"  {item['title']}: {', '.join(item['values'])}"
            for item in fairness["items"]
            if item["state"] == "different" and not item["is_intended"]
        ]
        return "\n".join(map(_printable, lines))

    def __repr__(self) -> str:
        return _printable(f"<halfscope.Comparison of {', '.join(self.report['key'].split(','))}: {self.sentence}>")

    def _repr_html_(self) -> str:
        """For notebooks: a frame of its own, so that neither page's styles nor scripts reach the other. Where the
        server has gone since, the verdict, which is here already, and why there is no more."""
        try:
            framed = html.escape(self.html, quote=True)
        except CompareError as error:
            text = html.escape(self.text())
            return f"<pre>{text}</pre><p>The figures are missing: {html.escape(str(error))}.</p>"
        return (
            f'<iframe srcdoc="{framed}" title="{html.escape(self.sentence)}" width="100%" height="{FRAME_PX}"></iframe>'
        )


def compare(
    runs: Sequence[str | Run],
    *,
    metric: str = "loss",
    align: Align = "attempts",
    tolerance: float = 0.005,
    server: str | None = None,
) -> Comparison:
    """Compare two to eight runs on a server.

    Args:
        runs: ids, beginnings of ids, names that only one run has, or runs of this process; the baseline first.
        metric: series that stands for quality.
        align: what one step of a run is set beside in another.
        tolerance: relative difference that is never called one, 0..1.
        server: address; by default the one that agents send to.

    Raises:
        CompareError: no such run, or the server cannot be asked or refused.
        ValueError: no address of a server.
    """
    endpoint = resolve(server)
    listed = json.loads(_get(endpoint, "/api/v1/runs", {"strip_bins": "10"}))["runs"]
    ids = [identify(run if isinstance(run, str) else run.id, listed) for run in runs]
    query = {"runs": ",".join(ids), "metric": metric, "align": align, "tolerance": repr(tolerance)}
    return Comparison(json.loads(_get(endpoint, "/api/v1/compare", query)), endpoint, query)


def identify(run: str, listed: Sequence[Mapping[str, Any]]) -> str:
    """The id that is meant.

    Raises:
        CompareError: none, or more than one.
    """
    ids = [str(each["id"]) for each in listed]
    named = [str(each["id"]) for each in listed if each["name"] == run]
    found = [run] if run in ids else named or [each for each in ids if run and each.startswith(run)]
    if len(found) == 1:
        return found[0]
    if found:
        raise CompareError(f"{len(found)} runs are called {run!r}: {', '.join(found[:5])}; give one of these ids")
    raise CompareError(f"there is no run {run!r} on the server; its page of runs lists those that are")


def _printable(line: str) -> str:
    """Control characters, line breaks and what turns the reading direction written out: a run's name may hold them."""
    return "".join(
        char if unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp") else ascii(char)[1:-1] for char in line
    )


def _get(endpoint: Endpoint, path: str, query: Mapping[str, str]) -> bytes:
    status, data, reason = fetch(
        endpoint.url, f"{path}?{urlencode(query)}", endpoint.token, timeout_s=TIMEOUT_S, max_bytes=MAX_BYTES
    )
    if status == 200:
        return data
    if status == 0:
        raise CompareError(f"no server answers at {endpoint.url} ({reason}); start one with: halfscope serve")
    if status == 401:
        raise CompareError(
            f"{endpoint.url} wants a token, and knows none of ours; get one from whoever runs it: "
            f"halfscope login {endpoint.url}"
        )
    try:
        detail = str(json.loads(data)["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"status {status}"
    raise CompareError(f"{endpoint.url} does not compare these runs: {detail}")
