"""The command line. One module per group of commands, each imported when its command is called.

`mynah ask` must add less than a third of a second to the model's own time, so this package imports nothing at
its top; `main` finds a command by name and imports its module alone.
"""
