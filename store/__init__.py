"""Everything Mynah keeps: one SQLite file that serving, collecting, judging and training meet in.

The loops of Mynah never call one another. The host writes what was said, the chat writes what the owner
thought of it, the learner writes what it made of both, and each reads what it needs from here. That is why
this package imports nothing of ours: whatever the others agree on is a row in a table.
"""
