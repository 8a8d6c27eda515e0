"""What takes long to make is made once, also where several processes run the tests."""

import fcntl
import os


def made_once(tmp_path_factory, name, make):
    """Return the folder `name`, filled by `make(folder)`: once for all of xdist's workers.

    So it is also never made twice at the same time, which what binds a fixed port would not survive.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".made").exists():
            make(folder)
            (folder / ".made").touch()
    return folder
