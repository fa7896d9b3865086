"""Kills the real programs at every boundary of a job's way, and looks whether the same command makes it good."""
