"""A file is there whole, or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from store.errors import DiskFull, HomeError
from store.files import whole_file


def test_it_appears_at_the_end_of_the_block(tmp_path):
    path = tmp_path / "new" / "file"
    with whole_file(path) as temporary:
        temporary.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_block_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def half(temporary):
        temporary.write_text("half")
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError), whole_file(path) as temporary:
        half(temporary)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), OSError("884736 requested and 204272 written")],
    ids=["the system's", "numpy's"],
)
def test_a_full_disk_is_one_clear_line(tmp_path, error):
    with pytest.raises(DiskFull, match="the disk is full"), whole_file(tmp_path / "file"):
        raise error
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written():
    with pytest.raises(HomeError, match="cannot write /proc"), whole_file(Path("/proc/nowhere/file")):
        pass
