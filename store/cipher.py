"""How a database file is opened, encrypted or not, and where its key comes from.

Encryption is SQLCipher's (an extra, `sqlcipher3`): every page with AES-256 and an HMAC, the key from the passphrase
by PBKDF2-HMAC-SHA512 in 256,000 rounds over the 16 bytes that the file begins with, which are SQLCipher 4's own
defaults, so that its shell opens the file too. The rounds take 0.1 to 0.6 s and a process opens several connections,
so they are counted here once per process, and a child is given the key itself, through a pipe: never on a command
line, where everybody can read it, nor in a file. A passphrase in the environment is not handed on.

Whether a file is encrypted is told by its first page: SQLite's begins with a known line, and an encrypted one is
indistinguishable from noise. There is no second place that could say otherwise after a crash. That page is read
before the process has a connection to the file, and once: closing any descriptor of a database drops the locks that
SQLite holds on it (sqlite.org/howtocorrupt.html, 2.2).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from store.errors import EncryptionError, PassphraseNeeded

if TYPE_CHECKING:
    import sqlite3

FROM_ENVIRONMENT = "MYNAH_PASSPHRASE"
OF_BACKUP = "MYNAH_BACKUP_PASSPHRASE"
"""Holds the passphrase of a backup that was made under another one than the home has now."""

KEY_VARIABLE = "MYNAH_KEY_FD"
"""Names the descriptor that a child reads its key from."""

EXTRA = "pip install 'mynah-chat[encryption]'"

_PLAIN = b"SQLite format 3\x00"
_PAGE = 4096
_SALT, _SECRET = 16, 32
_ROUNDS = 256_000
# Of 4096 random bytes all 256 values occur, but for one time in a million; text and code have far fewer.
_NOISE_VALUES = 240


@dataclass(frozen=True)
class Key:
    """What opens one file: the derived key, and the salt it was derived with."""

    secret: bytes = field(repr=False)
    salt: bytes = field(repr=False)

    @classmethod
    def derive(cls, passphrase: str, salt: bytes | None = None) -> Key:
        """The key that a passphrase gives with a file's salt, or with a new one."""
        import hashlib

        chosen = os.urandom(_SALT) if salt is None else salt
        secret = hashlib.pbkdf2_hmac("sha512", passphrase.encode(), chosen, _ROUNDS, _SECRET)
        return cls(secret, chosen)

    @property
    def literal(self) -> str:
        """The key as SQLCipher reads it in a statement: raw key and salt, no rounds."""
        return f"\"x'{self.secret.hex()}{self.salt.hex()}'\""


_guard = threading.Lock()
_salts: dict[tuple[str, int, int], bytes | None] = {}
_keys: dict[bytes, Key] = {}
_ask: Callable[[Path], str] | None = None
_given: str | None = None


def ask_with(ask: Callable[[Path], str] | None) -> None:
    """How to ask a person for the passphrase of a file; None asks nobody."""
    global _ask
    _ask = ask


def give(passphrase: str | None) -> None:
    """A passphrase to use before anybody is asked, such as one a script sends through a descriptor."""
    global _given
    _given = passphrase


def is_encrypted(path: Path) -> bool:
    """Whether a database file is encrypted; one that is not there is not."""
    return _salt_of(path) is not None


def connect(path: Path, seconds: float) -> sqlite3.Connection:
    """Open a database file, waiting so long where it is busy; asks for its passphrase where it has one.

    Raises:
        PassphraseNeeded: nobody gave a passphrase.
        EncryptionError: it is wrong, or the extra is not installed.
    """
    return open_with(path, key_of(path), seconds)


def key_of(path: Path) -> Key | None:
    """The key of a file that opens with it, or None where it is not encrypted. Raises as `connect`."""
    salt = _salt_of(path)
    if salt is None:
        return None
    with _guard:
        _take_handed()
        known = _keys.get(salt)
    if known is not None:
        return known
    module()
    key = Key.derive(_passphrase(path), salt)
    with closing(open_with(path, key, 10.0)):
        remember(key)
    return key


def open_with(path: Path, key: Key | None, seconds: float) -> sqlite3.Connection:
    """Open a database file with this key. Raises EncryptionError where it is the wrong one."""
    if key is None:
        # A question to a running host opens no database, and should not pay for importing one.
        import sqlite3

        return sqlite3.connect(path, timeout=seconds, isolation_level=None, check_same_thread=False)
    return _keyed(path, key, seconds)


def _keyed(path: Path, key: Key, seconds: float) -> sqlite3.Connection:
    driver = module()
    connection = driver.connect(path, timeout=seconds, isolation_level=None, check_same_thread=False)
    try:
        # It writes its diagnostics to standard error, where a chat may be drawn.
        connection.execute("PRAGMA cipher_log_level = NONE")
        connection.execute(f"PRAGMA key = {key.literal}")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except driver.DatabaseError as error:
        connection.close()
        if getattr(error, "sqlite_errorcode", None) == driver.SQLITE_NOTADB:
            forget(path)
            raise EncryptionError(
                f"the passphrase does not open {path}: try again (or the file is damaged, then restore a backup)"
            ) from None
        raise
    connection.row_factory = driver.Row
    return cast("sqlite3.Connection", connection)


def row_factory(connection: sqlite3.Connection) -> type:
    """The row type that goes with a connection: each library has its own."""
    import sqlite3

    return sqlite3.Row if isinstance(connection, sqlite3.Connection) else cast(type, module().Row)


def module() -> ModuleType:
    """SQLCipher's driver. Raises EncryptionError where the extra is not installed."""
    try:
        from sqlcipher3 import dbapi2
    except ImportError:
        raise EncryptionError(f"an encrypted database needs one more package: `{EXTRA}`") from None
    return cast(ModuleType, dbapi2)


def database_errors() -> tuple[type[Exception], ...]:
    """The error classes of all drivers that are loaded: those of SQLCipher are not those of sqlite3."""
    return _errors("DatabaseError")


def operational_errors() -> tuple[type[Exception], ...]:
    """The same, for what can happen to a database that is sound."""
    return _errors("OperationalError")


def _errors(name: str) -> tuple[type[Exception], ...]:
    import sqlite3

    loaded = sys.modules.get("sqlcipher3.dbapi2")
    return (getattr(sqlite3, name), *([] if loaded is None else [getattr(loaded, name)]))


def remember(key: Key) -> None:
    """Keep a key that is known to fit for as long as the process lives."""
    with _guard:
        _keys[key.salt] = key


def forget(path: Path) -> None:
    """Look again what a file is: it was replaced."""
    with _guard:
        for known in [each for each in _salts if each[0] == str(path)]:
            del _salts[known]


def unlock(path: Path) -> None:
    """Ask for the passphrase now, where one is needed: before a screen is drawn that nobody can be asked on."""
    key_of(path)


def unlock_copy(path: Path, named: Path) -> None:
    """Find the key of a database out of a backup, which may be under another passphrase than the home's.

    What was given is tried first; then a person is asked, who knows the backup as ``named``.

    Raises:
        EncryptionError: none fits, or nobody can be asked.
    """
    if not locked(path):
        return
    given = [os.environ.get(OF_BACKUP), _given, os.environ.get(FROM_ENVIRONMENT)]
    for passphrase in dict.fromkeys(filter(None, given)):
        with suppress(EncryptionError):
            _try(path, passphrase)
            return
    refused = PassphraseNeeded(
        f"{named} was made under another passphrase: run this in a terminal, or set {OF_BACKUP} to it"
    )
    if _ask is None:
        raise refused
    try:
        passphrase = _ask(named)
    except PassphraseNeeded:
        raise refused from None
    try:
        _try(path, passphrase)
    except EncryptionError:
        raise EncryptionError(f"the passphrase does not open {named}: nothing was changed") from None


def locked(path: Path) -> bool:
    """Whether a database is encrypted and this process has no key that is known to fit."""
    salt = _salt_of(path)
    with _guard:
        _take_handed()
        return salt is not None and salt not in _keys


def opens(key: Key | None, page: bytes, size: int) -> bool:
    """Whether a database with this first page (4096 bytes) and size is plain, or made with the same key."""
    salt = _salt_in(page, size)
    return salt is None or (key is not None and key.salt == salt)


def _try(path: Path, passphrase: str) -> None:
    salt = _salt_of(path)
    assert salt is not None
    key = Key.derive(passphrase, salt)
    with closing(open_with(path, key, 10.0)):
        remember(key)


@contextmanager
def handed_down(path: Path) -> Iterator[tuple[dict[str, str], tuple[int, ...]]]:
    """The environment and the descriptors with which a child can open a file that this process can open.

    Raises as `connect`.
    """
    secrets = (FROM_ENVIRONMENT, OF_BACKUP, KEY_VARIABLE)
    environment = {name: value for name, value in os.environ.items() if name not in secrets}
    key = key_of(path)
    if key is None:
        yield environment, ()
        return
    reader, writer = os.pipe()
    try:
        # 48 bytes fit into any pipe: nobody waits for a reader.
        os.write(writer, key.secret + key.salt)
        os.close(writer)
        yield {**environment, KEY_VARIABLE: str(reader)}, (reader,)
    finally:
        os.close(reader)


def _take_handed() -> None:
    """The key that our parent gave us, taken once."""
    name = os.environ.pop(KEY_VARIABLE, None)
    if name is None or not name.isdigit():
        return
    try:
        given = os.read(int(name), _SECRET + _SALT)
        os.close(int(name))
    except OSError:
        return
    if len(given) == _SECRET + _SALT:
        _keys[given[_SECRET:]] = Key(given[:_SECRET], given[_SECRET:])


def _passphrase(path: Path) -> str:
    passphrase = _given or os.environ.get(FROM_ENVIRONMENT)
    if passphrase:
        return passphrase
    if _ask is None:
        raise PassphraseNeeded(
            f"{path} is encrypted: run this in a terminal, or set {FROM_ENVIRONMENT} "
            "(or use `mynah --passphrase-fd N …`)"
        )
    return _ask(path)


def _salt_of(path: Path) -> bytes | None:
    with _guard:
        try:
            info = path.stat()
        except FileNotFoundError:
            return None
        # A file that is converted is replaced, so the state of one file never changes.
        known = (str(path), info.st_dev, info.st_ino)
        if known not in _salts:
            _salts[known] = _read_salt(path, info.st_size)
        return _salts[known]


def _read_salt(path: Path, size: int) -> bytes | None:
    with path.open("rb") as file:
        return _salt_in(file.read(_PAGE), size)


def _salt_in(page: bytes, size: int) -> bytes | None:
    noise = size > 0 and size % _PAGE == 0 and len(set(page)) >= _NOISE_VALUES
    return page[:_SALT] if noise and not page.startswith(_PLAIN) else None
