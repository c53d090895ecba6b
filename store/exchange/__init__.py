"""Conversations in and out: other programs' exports, trainers' data sets, and backups of everything.

What comes in is turned into one neutral form (`drafts`) by a small reader per format and written by one writer
(`intake`), so that branches, times, identity and consent are handled once. What goes out is a stored conversation
read whole and redacted once (`records`), which each format then only lays out.
"""
