"""`python -m runner` is the command `comfy-batch`."""

from runner.cli.main import main

main()
