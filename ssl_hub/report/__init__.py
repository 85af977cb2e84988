"""Looking at runs: one page that holds everything, and a live view in a terminal.

``record`` reads what a run folder holds; ``story`` is what a report tells of its runs; each file of sections draws some
of them; ``page`` puts them in order; ``watch`` follows a run that is training.
"""
