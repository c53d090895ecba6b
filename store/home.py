"""The only place that knows paths. The data directory is private: 0700, files 0600, refused when it is not.

Derived weights of public models (the F16 form, the copy that torch maps) hold nothing personal and are the
same for every home, so they live in the user's cache directory and are made once per machine.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from store.errors import DiskFull, HomeError, HomeLocked

PRIVATE_DIR = 0o700
PRIVATE_FILE = 0o600


@dataclass(frozen=True)
class Home:
    """Paths inside one data directory. Making a ``Home`` touches nothing; ``open`` checks and creates."""

    root: Path

    @classmethod
    def default(cls) -> Home:
        """``MYNAH_HOME``, else the platform's user data directory."""
        chosen = os.environ.get("MYNAH_HOME")
        if chosen:
            return cls(Path(chosen).expanduser().absolute())
        import platformdirs

        return cls(Path(platformdirs.user_data_dir("mynah", appauthor=False)))

    @property
    def db(self) -> Path:
        return self.root / "mynah.db"

    @property
    def adapters(self) -> Path:
        return self.root / "adapters"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def scratch(self) -> Path:
        """Half-made files of the learner; nothing in here is ever live, all of it may be deleted at a start."""
        return self.root / "scratch"

    @property
    def host_json(self) -> Path:
        return self.root / "host.json"

    @property
    def host_lock(self) -> Path:
        return self.root / "host.lock"

    @property
    def learner_lock(self) -> Path:
        return self.root / "learner.lock"

    @property
    def activity(self) -> Path:
        return self.root / "activity"

    @property
    def cache(self) -> Path:
        """Derived weights of public models: ``MYNAH_CACHE``, else the platform's user cache directory."""
        chosen = os.environ.get("MYNAH_CACHE")
        if chosen:
            return Path(chosen).expanduser().absolute()
        import platformdirs

        return Path(platformdirs.user_cache_dir("mynah", appauthor=False))

    def open(self) -> Home:
        """Check the directory and create what is missing.

        Raises:
            HomeError: it is not a directory, not writable, or open to other users.
            DiskFull: it could not be created for want of space.
        """
        os.umask(0o077)
        with _explained(self.root):
            _private_dir(self.root)
            for part in (self.adapters, self.logs, self.scratch):
                _private_dir(part)
            # Not each adapter and log: no one gets into their directories.
            for path in sorted(self.root.iterdir()):
                if path.is_symlink() or not path.is_dir():
                    _refuse_if_open(path, "chmod 600")
        self.finish_wiping()
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise HomeError(
                f"cannot write to the data directory {self.root}: check its owner, or set MYNAH_HOME"
            )
        return self

    def finish_wiping(self) -> None:
        """Overwrite and remove what a replaced database left behind, also after a crash in the middle of it."""
        for old in (self.db.with_name("mynah.db.old"), self.db.with_name("mynah.db-wal.old")):
            live = old.with_suffix("")
            if not old.exists():
                continue
            # The second name of a file that is still in use is only a name.
            if not (live.exists() and old.samefile(live)):
                with suppress(FileNotFoundError):
                    descriptor = os.open(old, os.O_RDWR | os.O_CLOEXEC)
                    try:
                        wipe(descriptor)
                    finally:
                        os.close(descriptor)
            old.unlink(missing_ok=True)


def wipe(descriptor: int) -> None:
    """Overwrite a file's bytes where they lie, as far as the file system lets us, and force that to the disk."""
    left = os.fstat(descriptor).st_size
    noise = os.urandom(1024 * 1024)
    os.lseek(descriptor, 0, os.SEEK_SET)
    while left > 0:
        left -= os.write(descriptor, noise[: min(left, len(noise))])
    os.fsync(descriptor)


def _private_dir(path: Path) -> None:
    if path.is_symlink():
        raise HomeError(_linked(path))
    if not path.exists():
        path.mkdir(mode=PRIVATE_DIR, parents=True)
        return
    if not path.is_dir():
        raise HomeError(f"{path} is not a directory: move it away, or set MYNAH_HOME to another place")
    _refuse_if_open(path, "chmod 700")


def _refuse_if_open(path: Path, remedy: str) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        # It was there a moment ago: another process ended.
        return
    if stat.S_ISLNK(found.st_mode):
        raise HomeError(_linked(path))
    if found.st_uid != os.geteuid():
        raise HomeError(
            f"{path} belongs to another user: run `chown` on it, or set MYNAH_HOME to a place of yours"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        raise HomeError(
            f"{path} can be read by other users (mode {mode:04o}): run `{remedy} {path}` and start again"
        )


def _linked(path: Path) -> str:
    """A link can be turned to another place by whoever owns the directory it lies in."""
    return f"{path} is a symbolic link: set MYNAH_HOME to {path.resolve()}, or put a directory in its place"


@contextmanager
def _explained(root: Path) -> Iterator[None]:
    """Turn the operating system's word into one line that names the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"the disk that holds {root} is full: free some space and start again") from error
        if error.errno == errno.EROFS:
            raise HomeError(f"the data directory {root} is on a read-only disk: set MYNAH_HOME") from error
        raise HomeError(
            f"cannot use the data directory {root} ({error.strerror}): check its owner, or set MYNAH_HOME"
        ) from error


@contextmanager
def locked(path: Path, holder: str) -> Iterator[None]:
    """Hold an exclusive lock on a file for the length of the block; the kernel drops it if we die.

    Raises:
        HomeLocked: another process holds it.
    """
    with _explained(path.parent):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise HomeLocked(
                f"a {holder} (process {owner}) already runs on {path.parent}: "
                "use that one, or `mynah stop` it first"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)
