"""The images that compose.yaml needs: the project's own, and public ones or their stand-ins; and the GPU image, which
`make gpu-image` builds.

A public image is pulled. Where its registry cannot be reached, an image of the same name is made from Debian's packages
(`stand_ins`), with the mirror that this machine's apt uses; it has Debian's version of the program. The build uses
pip's configuration of this machine, of which nothing stays in an image.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
STAND_INS = Path(__file__).parent / "stand_ins"
IMAGE, GPU_IMAGE = "localhost/podium:latest", "localhost/podium-gpu:latest"
PUBLIC = {
    "docker.io/library/python:3.11-slim-bookworm": "python",
    "docker.io/library/postgres:16": "postgres",
    "docker.io/library/redis:7": "redis",
    "docker.io/versity/versitygw:v1.0.14": "versitygw",
}
"""Public image → its stand-in, in the order in which they can be made."""
_DEBIAN, _RELEASE = "localhost/podium-stand-in/debian", "bookworm"
_BUILD = ("build", "--isolation", "chroot", "--network", "host")
_MOUNTED = "/run/pip"
"""The folder, during a build, of files that pip's configuration names."""
Say = Callable[[str], None]


def podman(*arguments: str, timeout_s: float = 3600) -> str:
    """Run podman; return its output. Raises `AssertionError` with the output of a failed command."""
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True, check=False, timeout=timeout_s)
    assert done.returncode == 0, f"podman {' '.join(arguments)}: {(done.stdout + done.stderr)[-3000:]}"
    return done.stdout


@contextmanager
def settings_of_podman(folder: Path) -> Iterator[None]:
    """Run podman with runc where it is installed, and with limits that this machine can set."""
    most = {"nofile": (resource.RLIMIT_NOFILE, 1 << 20), "nproc": (resource.RLIMIT_NPROC, 1 << 15)}
    limits = {name: min(asked, resource.getrlimit(kind)[1]) for name, (kind, asked) in most.items()}
    limits = {name: limit for name, limit in limits.items() if limit > 0}  # -1: no limit
    lines = ["[containers]", f"default_ulimits = {json.dumps([f'{name}={n}:{n}' for name, n in limits.items()])}"]
    lines += ["[engine]", 'runtime = "runc"'] if shutil.which("runc") else []
    file = folder / "containers.conf"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    before = os.environ.get("CONTAINERS_CONF")
    os.environ["CONTAINERS_CONF"] = str(file)
    try:
        yield
    finally:
        os.environ.pop("CONTAINERS_CONF")
        if before is not None:
            os.environ["CONTAINERS_CONF"] = before


def exists(image: str) -> bool:
    return subprocess.run(["podman", "image", "exists", image], check=False, timeout=60).returncode == 0


def public_images(say: Say) -> None:
    """Pull each public image that is absent, or make its stand-in."""
    for image, stand_in in PUBLIC.items():
        if exists(image):
            say(f"{image} is there")
            continue
        pulled = subprocess.run(["podman", "pull", "--quiet", image], capture_output=True, check=False, timeout=900)
        if pulled.returncode == 0:
            say(f"{image} was pulled")
            continue
        _debian()
        podman(*_BUILD, "--tag", image, "--file", str(STAND_INS / f"{stand_in}.Dockerfile"), str(STAND_INS))
        say(f"{image}: the registry cannot be reached; a stand-in of that name was made from Debian's packages")


def _debian() -> None:
    """Make a bare Debian from the mirror that apt uses, unless it is there."""
    if exists(_DEBIAN):
        return
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages", "Component: main"]
    targets = [line.split() for line in subprocess.check_output(asked, text=True, timeout=60).splitlines()]
    mirror = next((uri for uri, release in targets if release == _RELEASE), None)
    assert mirror, f"the images' registry cannot be reached, and apt names no mirror of Debian {_RELEASE}"
    with TemporaryDirectory() as folder:
        command = ["debootstrap", "--variant=minbase", _RELEASE, folder, mirror]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=1800)
        packed = subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE)
        subprocess.run(["podman", "import", "-", _DEBIAN], stdin=packed.stdout, check=True, timeout=600)
        assert packed.wait(60) == 0


def own_image(tag: str = IMAGE, target: str = "cpu") -> None:
    """Build the image of that target of the Dockerfile from the checkout."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "pip.conf"
        text, volumes = pip_configuration()
        file.write_text(text, encoding="utf-8")
        mounts = [part for source, target in volumes.items() for part in ("--volume", f"{source}:{target}:ro")]
        build = (*_BUILD, "--layers", "--target", target, "--secret", f"id=pip,src={file}", *mounts)
        podman(*build, "--tag", tag, str(ROOT))


def pip_configuration() -> tuple[str, dict[str, str]]:
    """Return pip's configuration of this machine as a file's text, and the mounts (here → in the build) of what it
    names.
    """
    said = subprocess.check_output([sys.executable, "-m", "pip", "config", "list"], text=True, timeout=60)
    values: dict[str, str] = {}
    volumes: dict[str, str] = {}
    for name, value in re.findall(r"^[^.\s]+\.([\w-]+)='(.*)'$", said, re.MULTILINE):
        words = []
        for word in value.replace("\\n", " ").split():
            path = Path(word.removeprefix("file://"))
            if path.is_absolute() and path.exists():
                # The pages of an index name files beside its folder.
                source = path.parent if word.startswith("file://") else path
                # Named by the source: a stored layer keeps the mount point, and another source may be no folder.
                name_there = hashlib.sha256(str(source).encode()).hexdigest()[:12]
                target = volumes.setdefault(str(source), f"{_MOUNTED}/{name_there}")
                word = word.replace(str(source), target, 1)
            words.append(word)
        values[name] = " ".join(words)
    return "\n".join(["[global]", *(f"{name} = {value}" for name, value in values.items()), ""]), volumes


def missing_programs() -> list[str]:
    """Return the programs that are not installed and without which no composition can be started."""
    return [name for name in ("podman", "buildah", "debootstrap") if shutil.which(name) is None]


def main() -> int:
    """Build the GPU image, and print what it contains: versions, and DeepSpeed's compiled extension."""
    if missing := missing_programs():
        print(f"error: the GPU image is built with {', '.join(missing)}, which are not installed", file=sys.stderr)
        return 1
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--ignore-installed"]
    command = [*pip, "--report", "-", "--constraint", "constraints.txt", "torch"]
    found = json.loads(subprocess.check_output(command, cwd=ROOT, timeout=600))
    version = found["install"][0]["metadata"]["version"]
    if version.endswith("+cpu"):
        print(
            f"error: pip's configuration gives torch {version}, without CUDA. `PIP_CONFIG_FILE=/dev/null make "
            "gpu-image` does without that file; unset PIP_FIND_LINKS and PIP_EXTRA_INDEX_URL if they are set",
            file=sys.stderr,
        )  # fmt: skip
        return 1
    public_images(print)
    own_image(GPU_IMAGE, "gpu")
    look = (
        "import importlib.metadata as m; from deepspeed.git_version_info import installed_ops as o; assert o['utils'];"
        "print(*(f'{n} {m.version(n)}' for n in ('torch', 'vllm', 'deepspeed', 'trl', 'transformers')), sep=', ')"
    )
    with TemporaryDirectory() as folder, settings_of_podman(Path(folder)):
        print(f"{GPU_IMAGE}: {podman('run', '--rm', GPU_IMAGE, 'python', '-c', look).splitlines()[-1]}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
