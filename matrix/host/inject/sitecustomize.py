"""Put first on PYTHONPATH of a job, so that a Python process which hangs can say where.

Every Python process of the job writes its stacks to the file named in $MATRIX_STACKS when it gets the signal named in
$MATRIX_STACKS_SIGNAL. Then the sitecustomize that the environment has of its own runs, as if this one were not here.
"""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _register() -> None:
    path, number = os.environ.get("MATRIX_STACKS"), os.environ.get("MATRIX_STACKS_SIGNAL")
    if not path or not number:
        return
    try:
        import faulthandler

        file = open(path, "ab", buffering=0)  # kept open: the handler writes to the descriptor
        faulthandler.register(int(number), file=file, all_threads=True, chain=False)
        sys._matrix_stacks = file  # type: ignore[attr-defined]
    except (ImportError, OSError, ValueError, RuntimeError):
        pass  # a job must run even where its stacks cannot be had


def _chain() -> None:
    """Run the next sitecustomize on the path in place of this one."""
    from importlib.machinery import PathFinder

    sys.path[:] = [p for p in sys.path if os.path.abspath(p or os.curdir) != _here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_register()
_chain()
