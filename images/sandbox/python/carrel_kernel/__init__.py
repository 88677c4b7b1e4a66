"""The Python kernel of a sandbox: ipykernel, made to behave like a program somebody runs, cell after cell."""
