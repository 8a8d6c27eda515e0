"""Jobs that run in a container: how docker or podman is called, and how a container is ended by its label.

Imported by the supervisor, so what is heavy is imported where it is used.
"""

from __future__ import annotations

import os

LABEL = "matrix.tag"
_LIMIT = 20.0  # seconds for one call of the tool


def tool() -> str | None:
    """Return the path of docker where its daemon is, else of podman; None where this host has neither."""
    import shutil

    docker, podman = shutil.which("docker"), shutil.which("podman")
    served = os.environ.get("DOCKER_HOST") or os.path.exists("/var/run/docker.sock")
    return docker if docker and (served or not podman) else podman


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
    line = [program, "run", "--rm", "--label", f"{LABEL}={tag}", "--network", "host", "--workdir", cwd]
    if not _is_podman(program):
        line.append("--init")  # podman's needs a program that is often not there
    for mount in mounts:
        line += ["--volume", mount]
    if shm:
        line += ["--shm-size", str(shm)]
    if cards and _is_podman(program):
        line += [word for card in cards for word in ("--device", f"nvidia.com/gpu={card}")]
    elif cards:
        line += ["--gpus", f'"device={",".join(cards)}"']
    for name, value in sorted(env.items()):
        line += ["--env", f"{name}={value}"]
    return [*line, image, *argv]


def end(program: str, tag: str, env: dict[str, str] | None = None) -> str | None:
    """Remove the containers with this tag by force; return what went wrong.

    `env` tells the tool where its daemon or storage is, as it did when the container was started.
    """
    import subprocess

    try:
        found = subprocess.run(
            [program, "ps", "--all", "--quiet", "--filter", f"label={LABEL}={tag}"],
            capture_output=True, text=True, timeout=_LIMIT, check=False, stdin=subprocess.DEVNULL, env=env,
        )  # fmt: skip
        if found.returncode != 0:
            return f"{program} ps: {found.stderr.strip()}"
        if ids := found.stdout.split():
            removed = subprocess.run(
                [program, "rm", "--force", *(["--time", "0"] if _is_podman(program) else []), *ids],
                capture_output=True, text=True, timeout=_LIMIT, check=False, stdin=subprocess.DEVNULL, env=env,
            )  # fmt: skip
            if removed.returncode != 0:
                return f"{program} rm: {removed.stderr.strip()}"
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"{program}: {e}"
    return None


def _is_podman(program: str) -> bool:
    return os.path.basename(program) == "podman"
