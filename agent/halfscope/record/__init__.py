"""From a value to the disk: step clock, memory ring and crash-safe journal. Starts nothing when imported."""
