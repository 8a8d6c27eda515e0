"""Jobs that run in a container: how docker or podman is called, and how a container is ended by its label.

Imported by the supervisor, so what is heavy is imported where it is used.
"""

from __future__ import annotations

LABEL = "matrix.tag"
_LIMIT = 20.0  # seconds for one call of the tool


def tool() -> str | None:
    """Return the path of docker or podman, whichever this host has."""
    import shutil

    return shutil.which("docker") or shutil.which("podman")


def command(
    program: str,
    *,
    image: str,
    argv: list[str],
    tag: str,
    env: dict[str, str],
    cwd: str,
    mounts: list[str],
    shm: int | None,
    cards: list[str],
) -> list[str]:
    """Return the command line that runs `argv` in a container with the job's label, environment, mounts and cards."""
    line = [program, "run", "--rm", "--init", "--label", f"{LABEL}={tag}", "--network", "host", "--workdir", cwd]
    for mount in mounts:
        line += ["--volume", mount]
    if shm:
        line += ["--shm-size", str(shm)]
    if cards:
        line += ["--gpus", f'"device={",".join(cards)}"']
    for name, value in sorted(env.items()):
        line += ["--env", f"{name}={value}"]
    return [*line, image, *argv]


def end(program: str, tag: str) -> str | None:
    """Remove the containers with this tag by force; return what went wrong."""
    import subprocess

    try:
        found = subprocess.run(
            [program, "ps", "--all", "--quiet", "--filter", f"label={LABEL}={tag}"],
            capture_output=True, text=True, timeout=_LIMIT, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if found.returncode != 0:
            return f"{program} ps: {found.stderr.strip()}"
        if ids := found.stdout.split():
            removed = subprocess.run(
                [program, "rm", "--force", *ids],
                capture_output=True, text=True, timeout=_LIMIT, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            if removed.returncode != 0:
                return f"{program} rm: {removed.stderr.strip()}"
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"{program}: {e}"
    return None
