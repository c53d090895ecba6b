"""Measurements of the whole product, through its public commands. None of them runs in `make test`."""
