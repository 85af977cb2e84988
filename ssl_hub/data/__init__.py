"""Images in, tensors out: where images come from, the two views of each, and the loaders that batch them.

``sources`` opens named data, folders, tables and Hub datasets; ``survey`` says what they are; ``views`` draws the two
views and is the one evaluation transform; ``loaders`` puts both together. Every random number is a pure function of
where it is used (``draws``), so a run does not change with the number of workers or ranks, or by stopping and resuming
it.
"""
