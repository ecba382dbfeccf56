"""Five small real trainings that show what halfscope sees: FP32, FP16 autocast, and FP16 in trouble.

Owns the data, the networks and the loop; `python -m halfscope.demo --run NAME` trains one. Nothing else imports it.
Invariant: an ordinary training loop with the documented three lines, and no number that was not measured.
"""
