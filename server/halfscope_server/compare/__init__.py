"""Runs beside each other: what differs, which is worse, from which step and layer on, and what it costs.

Must not import plotly, fastapi or sqlalchemy; never torch. Invariant: nothing said of a run is more certain than the
data: what cannot be told is `unknown` with its reason, never a guess.
"""
