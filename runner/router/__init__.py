"""Talking HTTP: the Router, its catalog, and the hosts of media. The only part that knows httpx."""
