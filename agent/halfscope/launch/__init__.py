"""`halfscope run`: someone's program, unchanged, watched."""
