"""The bench that every test here starts."""

from tests.answers.bench import start

__all__ = ["start"]
