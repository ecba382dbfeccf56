"""Alerts: rules as data, their evaluation, and what is sent when they fire.

`rule` is the contract with people (page, API, YAML, Python), `types` the one between evaluation and whoever feeds it.
"""
