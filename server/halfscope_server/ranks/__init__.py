"""What follows from the streams of all ranks of one run: agreement, origin, stragglers, errors of communication.

Must not import plotly, fastapi, sqlalchemy or torch. Invariant: a judgement is a function of stored data at steps that
every member rank has passed, so replay and restart give the same ones.
"""
