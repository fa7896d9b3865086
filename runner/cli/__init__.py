"""The commands: they parse, call and print. The composition root: everything meets here and nowhere else."""
