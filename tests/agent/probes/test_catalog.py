"""The built-in series, whatever files describe them."""

from __future__ import annotations

from halfscope.probes.catalog import specs

ISSUE = {
    "amp.scale",
    "amp.scale_next",
    "amp.skipped",
    "amp.growth_tracker",
    "opt.steps",
    "loss",
    "lr",
    "grad.norm",
    "grad.norm_clipped",
    "time.step_s",
    "throughput.samples_per_s",
    "throughput.tokens_per_s",
    "memory.rss_bytes",
    "memory.device_allocated_bytes",
    "memory.device_peak_bytes",
    "halfscope.cost_share",
}


def test_every_promised_series_is_described() -> None:
    """Names are part of the export's contract."""
    assert set(specs()) >= ISSUE


def test_units_are_in_names_that_have_one() -> None:
    """`_s` is seconds, `_bytes` bytes, `_share` a share, `_per_s` something per second."""
    for name, spec in specs().items():
        for suffix, unit in (("_per_s", None), ("_bytes", "bytes"), ("_share", "share"), ("_s", "s")):
            if name.endswith(suffix):
                assert spec.unit == unit or (unit is None and spec.unit.endswith("/s")), name
                break


def test_names_are_dotted_lowercase() -> None:
    """As the wire says."""
    assert all(name == name.lower() and " " not in name for name in specs())
