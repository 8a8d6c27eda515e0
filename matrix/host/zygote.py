"""A warm process that forks supervisors, so that a job does not wait for an interpreter to start.

It takes requests from its runner on a socket, one message each: the uuids of the leased cards as JSON, and with it the
descriptors of the supervisor (commands in, events out, errors) and of the leases. A byte comes back when the supervisor
is there. The zygote ends when the runner does; its supervisors see that by themselves.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import traceback

from matrix.host import supervisor

MAX_MESSAGE = 1 << 16
MAX_FDS = 250  # the kernel's limit for a message is 253


def main() -> None:
    """Serve the socket on standard input until the runner closes it."""
    server = socket.socket(fileno=os.dup(0))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a supervisor ended
    gc.freeze()
    while True:
        message, fds, _, _ = socket.recv_fds(server, MAX_MESSAGE, MAX_FDS)
        if not message:
            return
        if os.fork() == 0:
            server.close()
            become_supervisor(json.loads(message), fds)
        for fd in fds:
            os.close(fd)
        server.send(b"+")


def become_supervisor(uuids: list[str], fds: list[int]) -> None:
    """In the child: take the place of a freshly started supervisor."""
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, fd in enumerate(fds[:3]):
            os.dup2(fd, number)
            os.close(fd)
        supervisor.main(dict(zip(uuids, fds[3:], strict=True)))
    except BaseException:  # noqa: BLE001 -- the last place where it can be told
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)
