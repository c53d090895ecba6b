"""The error tree. Every failure a person can meet is one of these, with one line that says what to do.

    MynahError                  exit code 1
    ├── UsageError              exit code 2: the command's words are wrong
    ├── NotFound                exit code 3: no such conversation, message, adapter …
    ├── Interrupted             exit code 130
    ├── HomeError               the data directory cannot be used as it is
    │   ├── HomeLocked          another process owns it
    │   └── DiskFull            nothing could be written, nothing was changed
    ├── EncryptionError         a wrong passphrase, or the extra is not installed
    │   └── PassphraseNeeded    nobody is there to be asked for it
    ├── SchemaTooNew            written by a newer Mynah, left untouched
    ├── ModelFileError          not a GGUF file, cut short, unreadable
    ├── AdapterFileError        not an adapter, of another model, damaged
    ├── ExchangeFileError       a file that cannot be imported or restored
    ├── ContextOverflow         one message alone is longer than the model's window
    ├── HostUnavailable         the host did not start or went away
    └── LearnerError            a learning run could not be carried out

The exit code lives on the class, so the command line needs no table of its own.
"""

from __future__ import annotations


class MynahError(Exception):
    """A failure with a message for the owner: one line, saying what happened and what to do."""

    exit_code = 1


class UsageError(MynahError):
    """The request itself is wrong."""

    exit_code = 2


class NotFound(MynahError):
    """An id that names nothing."""

    exit_code = 3


class Interrupted(MynahError):
    """The owner pressed Ctrl-C."""

    exit_code = 130


class HomeError(MynahError):
    """The data directory cannot be used as it is."""


class HomeLocked(HomeError):
    """Another process owns the data directory."""


class DiskFull(HomeError):
    """The disk is full; the write was rolled back."""


class EncryptionError(MynahError):
    """The encrypted database cannot be opened; nothing is wrong with the data directory itself."""


class PassphraseNeeded(EncryptionError):
    """The database is encrypted and there is nobody to ask for its passphrase."""


class SchemaTooNew(MynahError):
    """The database was written by a newer version."""


class ModelFileError(MynahError):
    """A model file that cannot be used."""


class AdapterFileError(MynahError):
    """An adapter file that cannot be used with this model."""


class ExchangeFileError(MynahError):
    """A file that cannot be imported or restored; nothing was changed."""


class ContextOverflow(MynahError):
    """The current message alone does not fit the model's window."""


class HostUnavailable(MynahError):
    """The host process cannot be reached."""


class LearnerError(MynahError):
    """A learning run failed for a reason that is not the model's."""
