"""Jobs in containers: how the tool is called, and that a container ends with its job."""

import shutil
import subprocess

import pytest

from matrix.host import containers

GIVEN = {"image": "i", "argv": ["a", "b c"], "tag": "r/j/1", "env": {"Z": "1", "A": "x y"}, "cwd": "/w"}


def test_docker_is_given_label_environment_mounts_and_cards():
    line = containers.command("/bin/docker", **GIVEN, mounts=["/w:/w"], shm=1 << 30, cards=["GPU-a", "GPU-b"])
    assert line[:2] == ["/bin/docker", "run"]
    assert line[-3:] == ["i", "a", "b c"]
    text = " ".join(line)
    assert "--label matrix.tag=r/j/1" in text
    assert "--volume /w:/w --shm-size 1073741824" in text
    assert '--gpus "device=GPU-a,GPU-b" --env A=x y --env Z=1' in text


def test_podman_names_cards_as_devices():
    line = containers.command("/bin/podman", **GIVEN, mounts=[], shm=None, cards=["GPU-a", "GPU-b"])
    assert "--device nvidia.com/gpu=GPU-a --device nvidia.com/gpu=GPU-b" in " ".join(line)
    assert "--gpus" not in line


def test_a_tool_that_fails_is_told(tmp_path):
    tool = tmp_path / "docker"
    tool.write_text("#!/bin/sh\necho no daemon >&2; exit 1")
    tool.chmod(0o755)
    assert containers.end(str(tool), "t") == f"{tool} ps: no daemon"
    assert "gone" in containers.end(str(tmp_path / "gone"), "t")


HANG = """
#include <signal.h>
#include <unistd.h>
int main(void) { signal(SIGTERM, SIG_IGN); write(1, "in container\\n", 13); for (;;) pause(); }
"""


@pytest.fixture
def podman(tmp_path, monkeypatch):
    """A podman with a storage of its own and an image of one static program; skips where no container can be run."""
    if not all(map(shutil.which, ("podman", "runc", "gcc"))):
        pytest.skip("needs podman, runc and gcc")
    (tmp_path / "containers.conf").write_text(
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        '[containers]\ndefault_ulimits = ["nofile=1000:1000", "nproc=1000:1000"]\n'
    )
    (tmp_path / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/graph"\nrunroot = "{tmp_path}/run"\n'
    )
    monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "containers.conf"))
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(tmp_path / "storage.conf"))
    (tmp_path / "hang.c").write_text(HANG)
    (tmp_path / "true.c").write_text("int main(void) { return 0; }")
    for name in ("hang", "true"):
        subprocess.run(["gcc", "-static", "-o", tmp_path / name, tmp_path / f"{name}.c"], check=True)
    subprocess.run(["tar", "-C", tmp_path, "-cf", tmp_path / "image.tar", "hang", "true"], check=True)
    tool = shutil.which("podman")
    subprocess.run([tool, "import", tmp_path / "image.tar", "matrix-test"], check=True, capture_output=True)
    tried = subprocess.run([tool, "run", "--rm", "--network", "host", "matrix-test", "/true"], capture_output=True)
    if tried.returncode != 0:
        pytest.skip(f"podman cannot run a container here: {tried.stderr.decode()[:200]}")
    return tool


def listed(tool, tag):
    asked = [tool, "ps", "--all", "--quiet", "--filter", f"label={containers.LABEL}={tag}"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.soak
def test_a_container_ends_by_its_label_alone(podman):
    run = [podman, "run", "--detach", "--network", "host", "--label"]
    for tag in ("r/a/1", "r/a/11"):
        subprocess.run([*run, f"{containers.LABEL}={tag}", "matrix-test", "/hang"], check=True, capture_output=True)
    assert containers.end(podman, "r/a/1") is None
    assert (listed(podman, "r/a/1"), len(listed(podman, "r/a/11"))) == ([], 1)
    assert containers.end(podman, "r/a/11") is None
    assert listed(podman, "r/a/11") == []


@pytest.mark.soak
def test_a_job_that_hangs_in_a_container_is_ended_with_it(podman, tmp_path, monkeypatch):
    import asyncio
    import os

    from matrix.engine.base import Launch
    from matrix.engine.local import Limits, LocalEngine
    from matrix.spec.job import Container

    monkeypatch.setattr(containers, "tool", lambda: podman)

    async def go():
        engine = LocalEngine((), Limits(term=0.3), str(tmp_path / "leases"))
        launch = Launch(
            tag="r/hang/1", argv=("/hang",), cwd=tmp_path / "work", env=dict(os.environ), log=tmp_path / "log",
            scratch=tmp_path / "scratch", timeout=8, container=Container("localhost/matrix-test"),
        )  # fmt: skip
        (tmp_path / "work").mkdir()
        try:
            run = await engine.start(launch)
            return await run.wait()
        finally:
            engine.close()

    out = asyncio.run(go())
    assert (out.why, out.left) == ("timeout", ())
    assert "in container" in (tmp_path / "log").read_text()
    assert listed(podman, "r/hang/1") == []
