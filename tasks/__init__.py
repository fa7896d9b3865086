"""Celery: what wakes people up. Every decision is made elsewhere; a task loads, acts, decides and applies."""
