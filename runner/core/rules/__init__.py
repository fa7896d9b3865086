"""What each event makes of a job, by the part of its life in which the event comes."""
