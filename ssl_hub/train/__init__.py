"""Training: the loop, its optimiser and schedules, checkpoints, the run folder, and the health monitor."""
