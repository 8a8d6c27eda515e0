"""The runner's end of the zygote: asks it for supervisors, and starts another one should it die."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_ROOT = str(Path(__file__).parents[2])
_LIMIT = 30.0  # seconds for a fork, on a host that is out of breath
_BOOT = "import sys; sys.path.append(sys.argv[1]); from matrix.host.zygote import main; main()"


class Nursery:
    """Makes supervisors. Its zygote is started with the first."""

    def __init__(self) -> None:
        self._zygote: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def supervisor(self, log: Path, lease: Mapping[str, int]) -> tuple[int, int]:
        """Start a supervisor; return descriptors: where it takes commands, and where it tells events.

        Raises:
            OSError: no process could be started.

        """
        try:
            return self._ask(log, lease)
        except OSError:  # the zygote died; a second one dying at once is another matter
            self.close()
            return self._ask(log, lease)

    def _ask(self, log: Path, lease: Mapping[str, int]) -> tuple[int, int]:
        server = self._connection()
        commands, to_supervisor = os.pipe2(os.O_CLOEXEC)
        events, from_supervisor = os.pipe2(os.O_CLOEXEC)
        try:
            with log.open("ab") as errors:  # a supervisor that breaks says why in the job's log
                given = [commands, from_supervisor, errors.fileno(), *lease.values()]
                socket.send_fds(server, [json.dumps(list(lease)).encode()], given)
            if not server.recv(1):
                raise ConnectionResetError("the zygote ended")
        except OSError:
            os.close(to_supervisor)
            os.close(events)
            raise
        finally:
            os.close(commands)
            os.close(from_supervisor)
        return to_supervisor, events

    def _connection(self) -> socket.socket:
        if self._socket is None:
            here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with there:
                self._zygote = subprocess.Popen(
                    [sys.executable, "-S", "-E", "-I", "-c", _BOOT, _ROOT],
                    stdin=there.fileno(),
                    stdout=subprocess.DEVNULL,
                    env={"PATH": os.environ.get("PATH", os.defpath)},
                    cwd="/",
                    start_new_session=True,  # Ctrl-C in the terminal is for the runner alone
                )
            here.settimeout(_LIMIT)
            self._socket = here
        return self._socket

    @property
    def pid(self) -> int | None:
        """Pid of the zygote, once there is one."""
        return self._zygote.pid if self._zygote else None

    def close(self) -> None:
        """End the zygote; supervisors go on."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._zygote is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._zygote.wait(5)
            self._zygote = None
