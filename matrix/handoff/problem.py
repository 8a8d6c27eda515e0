"""What is wrong with a hand-off, and the small checks that hold for any file."""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass
from pathlib import Path

_LFS = b"version https://git-lfs.github.com/spec/"
_LFS_SIZE = re.compile(rb"^size (\d{1,18})$", re.MULTILINE)
_HALF_WRITTEN = re.compile(
    r"^\.?(?:tmp|unfinished)[-_.]|\.(tmp|temp|part|partial|incomplete|crdownload)([-._]\w+)*$|~$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that keeps a hand-off from being used. `file` is as the user would look for it."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"


def half_written(name: str) -> bool:
    """Tell whether a name is one that writers give to a file before it is complete.

    >>> half_written("model.safetensors.tmp.1234"), half_written("tmp-checkpoint-10"), half_written("template.json")
    (True, True, False)
    """
    return _HALF_WRITTEN.search(name) is not None


def size(path: Path) -> int | str:
    """Return the size of a regular file in bytes, or in words what keeps it from being read."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return "a link that leads nowhere" if path.is_symlink() else "is not there"
    except OSError as e:
        return f"cannot be read: {e.strerror}"
    except ValueError:  # a name that no file can have, out of an index
        return "is not there"
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    return found.st_size


def head(path: Path, count: int) -> bytes:
    """Return the first bytes of a file."""
    with path.open("rb") as f:
        return f.read(count)


def lfs_pointer(path: Path, length: int) -> str | None:
    """Say so if a file is a git-lfs pointer, the few lines that stand for a file that was never fetched."""
    if length > 1024:
        return None
    text = head(path, 1024)
    if not text.startswith(_LFS):
        return None
    real = _LFS_SIZE.search(text)
    return "a git-lfs pointer, not the file" + (f" of {int(real[1])} bytes that it stands for" if real else "")
