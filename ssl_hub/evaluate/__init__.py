"""Measurements of a frozen backbone: features, then a nearest-neighbour or linear classifier, then a dated record."""
