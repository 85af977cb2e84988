"""The tables of the paper as data, what was measured beside them, the verdict on each claim, and runs side by side."""
