"""Mynah's application: the model host, the chat and the command line.

Nothing in this package imports torch: a chat must open in the time a terminal program may take, and
torch alone costs seconds. What trains lives in `learner`, in a process of its own.
"""

__version__ = "0.1.0"
