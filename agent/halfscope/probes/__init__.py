"""One file per metric family: what its series are (`SERIES`) and how they are measured. No threads, no I/O."""
