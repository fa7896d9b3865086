"""What a user sets, and what Celery is told."""
