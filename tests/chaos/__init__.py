"""A batch among servers and workers that die all the time, and a Router that answers one call in five wrongly."""
