"""People with hidden rules, and whether a model learns them from what they ordinarily do.

Everything is checked by code and counted by code: no model judges another one here, so a figure can be made again.
"""
