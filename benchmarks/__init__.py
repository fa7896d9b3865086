"""Measurements, for people to read; nothing here is asserted, and none of it runs in CI."""
