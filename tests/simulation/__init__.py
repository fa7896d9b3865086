"""A simulation of the whole: the real steps, stores and sweepers against models of all that surrounds them, under one
clock and one order of events that a seed decides."""
