"""Outcomes as people want them: tables and pages."""
