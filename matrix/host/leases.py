"""Leases of cards by flock: one file a card plus a gate file, seen by every runner of the host.

The lock belongs to the open file, which the runner and the job's supervisor both hold, so that the card stays leased
until both are gone. The file also says who leased it. Whoever leases a card next and finds an entry that was not taken
out looks for that job in the process table, and ends it or leaves the card alone.

Imported by the supervisor: standard library only, and little of it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator

from matrix.host import containers, process

DEFAULT = "/run/lock/matrix"
_END_LIMIT = 2.0  # seconds that the processes of a dead job get to vanish after KILL


class LeaseError(Exception):
    """The lease folder cannot be used."""


class Busy(Exception):  # noqa: N818 -- no error: another holds the card
    """A card of the wanted set is leased, or a process of its last job cannot be ended."""


def folder() -> str:
    """Return the lease folder of this host."""
    return os.environ.get("MATRIX_LEASE_DIR") or DEFAULT


class Lease:
    """Cards that are held, by uuid. Close it to let go of this process's share; `release` frees the cards."""

    def __init__(self, directory: str, tag: str, fds: dict[str, int]) -> None:
        self.directory, self.tag, self.fds = directory, tag, fds

    def update(self, **facts: object) -> None:
        """Add facts to the entry of this lease in every card's file."""
        with _gate(self.directory):
            for fd in self.fds.values():
                entries = _entries(fd)
                for e in entries:
                    if e.get("tag") == self.tag:
                        e.update(facts)
                _write(fd, entries)

    def release(self) -> None:
        """Take the entry out and unlock, also for others that hold the same open file. Only when the job is gone."""
        if not self.fds:
            return
        with _gate(self.directory):
            for fd in self.fds.values():
                _write(fd, [e for e in _entries(fd) if e.get("tag") != self.tag])
                fcntl.flock(fd, fcntl.LOCK_UN)
        self.close()

    def close(self) -> None:
        """Let go of this process's copies; the cards stay leased while another process holds them."""
        for fd in self.fds.values():
            os.close(fd)
        self.fds = {}


class Leases:
    """The lease folder of a host."""

    def __init__(self, directory: str | None = None) -> None:
        self.directory = directory or folder()
        self._reservation = -1
        try:
            _make_shared_folder(self.directory)
            with _gate(self.directory):
                pass
        except OSError as e:
            raise LeaseError(f"cannot use the lease folder {self.directory}: {e.strerror}") from e

    def take(self, uuids: Iterable[str], tag: str, *, shared: bool = False, **facts: object) -> Lease:
        """Lease all of `uuids` or none. A shared lease goes along with other shared ones.

        Raises:
            Busy: one of them is leased by another.

        """
        fds: dict[str, int] = {}
        entry = {"tag": tag, "pid": os.getpid(), "uid": os.getuid(), "since": time.time(), **facts}
        me = process.read(os.getpid())
        entry["start"] = me.start if me else 0
        try:
            with _gate(self.directory):
                for uuid in sorted(set(uuids)):
                    fds[uuid] = _open(self.directory, uuid)
                    _lock(fds[uuid], uuid, shared=shared)
                for uuid, fd in fds.items():
                    _write(fd, [*_settle(_entries(fd), uuid, shared=shared), entry])
        except BaseException:
            for fd in fds.values():
                os.close(fd)
            raise
        return Lease(self.directory, tag, fds)

    def free(self, uuids: Iterable[str], *, shared: bool = False) -> list[str]:
        """List those of `uuids` that a lease could have at this moment."""
        free = []
        with _gate(self.directory):
            for uuid in uuids:
                fd = _open(self.directory, uuid)
                try:
                    _lock(fd, uuid, shared=shared)
                    free.append(uuid)
                except Busy:
                    pass
                finally:
                    os.close(fd)
        return free

    def reserve(self, uuids: Iterable[str], tag: str) -> bool:
        """Ask other runners not to start on these cards, so that a wide job gets them; one runner at a time may.

        An empty set lets go, and so does the end of this process.
        """
        wanted = list(uuids)
        if not wanted:
            if self._reservation >= 0:
                os.close(self._reservation)
                self._reservation = -1
            return False
        if self._reservation < 0:
            fd = _open(self.directory, ".reserved", suffix="")
            try:
                _lock(fd, "the reservation", shared=False)
            except Busy:
                os.close(fd)
                return False
            self._reservation = fd
        _write(self._reservation, [{"tag": tag, "cards": wanted, "pid": os.getpid()}])
        return True

    def reserved_by_others(self) -> list[str]:
        """List the cards that another runner has asked for."""
        if self._reservation >= 0:
            return []
        fd = _open(self.directory, ".reserved", suffix="")
        try:
            _lock(fd, "the reservation", shared=True)
        except Busy:
            cards = [e.get("cards") for e in _entries(fd)]
            return [c for some in cards if isinstance(some, list) for c in some if isinstance(c, str)]
        else:
            return []
        finally:
            os.close(fd)

    def holders(self, uuid: str) -> list[dict[str, object]]:
        """Return who is said to hold a card: tag, pid, uid, since, and what the runner added."""
        fd = _open(self.directory, uuid)
        try:
            return _entries(fd)
        finally:
            os.close(fd)


def _settle(entries: list[dict[str, object]], uuid: str, *, shared: bool) -> list[dict[str, object]]:
    """Keep the entries of living holders; end the jobs of dead ones, or raise Busy where that is not possible."""
    kept = []
    for e in entries:
        holder = process.read(_int(e.get("pid")))
        if shared and holder is not None and holder.start == e.get("start"):
            kept.append(e)
            continue
        tag = str(e.get("tag"))
        # Never end what this process belongs to: a run inside a job that shares its cards.
        if tag in tags_of_self():
            raise Busy(f"{uuid}: leased by the job that this process belongs to")
        if container := e.get("container"):
            containers.end(str(container), tag)
        left = process.kill_all(lambda tag=tag: process.of_job(tag), _END_LIMIT)  # type: ignore[misc]
        # In the job's session, but without its tag: the job's in all likelihood, yet not for us to end.
        left += [p.pid for p in process.of_session(_int(e.get("sid")), _int(e.get("sid_start")))]
        if left or _hidden(e):
            raise Busy(f"{uuid}: processes of its last job {tag} are still there: {left or 'of another user'}")
    return kept


def tags_of_self() -> list[str]:
    """List the tags of the jobs that this process runs in."""
    return os.environ.get(process.TAG, "").split(process.TAG_SEPARATOR)


def _hidden(entry: dict[str, object]) -> bool:
    """Whether the job of a dead holder may live on in processes whose tags this user may not read."""
    uid = _int(entry.get("uid"))
    if os.getuid() in (0, uid):
        return False
    since = _float(entry.get("since"))
    tick = os.sysconf("SC_CLK_TCK")
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    for p in process.table().values():
        try:
            owner = os.stat(f"/proc/{p.pid}").st_uid
        except OSError:
            continue
        if owner == uid and p.alive and boot + p.start / tick >= since - 1 and process.environment(p.pid) is None:
            return True
    return False


def _lock(fd: int, uuid: str, *, shared: bool) -> None:
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Busy(f"{uuid}: leased") from None


@contextlib.contextmanager
def _gate(directory: str) -> Iterator[None]:
    """Let one process at a time take or free cards: no partial holds, no livelock."""
    fd = _open(directory, ".gate", suffix="")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _open(directory: str, name: str, suffix: str = ".lock") -> int:
    """Open a lock file that every user may lock, and make it where there is none.

    Opened without O_CREAT first: in a sticky folder the kernel refuses O_CREAT on another user's file
    (fs.protected_regular).
    """
    path = f"{directory}/{name.replace('/', '_')}{suffix}"
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    for _ in range(3):
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(fd, 0o666)  # whatever the umask says
                return fd
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _make_shared_folder(directory: str) -> None:
    try:
        os.makedirs(directory)
        os.chmod(directory, 0o1777)  # noqa: S103 -- every user of the host leases from the same cards
    except FileExistsError:
        pass


def _entries(fd: int) -> list[dict[str, object]]:
    size = os.fstat(fd).st_size
    entries = []
    for line in os.pread(fd, size, 0).splitlines():
        with contextlib.suppress(ValueError):  # a half-written line of a killed holder names nobody
            entry = json.loads(line)
            if isinstance(entry, dict):
                entries.append(entry)
    return entries


def _write(fd: int, entries: list[dict[str, object]]) -> None:
    """Replace the entries. Written before the cut: a kill in between leaves an entry too many, never too few."""
    data = b"".join(json.dumps(e).encode() + b"\n" for e in entries)
    os.pwrite(fd, data, 0)
    os.ftruncate(fd, len(data))


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
