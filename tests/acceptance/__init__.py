"""What users see: real processes, killed and started again, and what was billed for it."""
