"""Hooks on scaler, optimizer, autocast and modules; every handle can be removed. Starts nothing when imported."""
