"""Fixtures that any test may ask for; each is described where it is made."""

from __future__ import annotations

pytest_plugins = [
    "tests.support.browser",
    "tests.support.databases",
    "tests.support.redis",
    "tests.support.rabbitmq",
    "tests.support.loopback",
    "tests.support.objectstore",
    "tests.support.warm",
]
