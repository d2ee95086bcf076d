"""A Debian system in a folder: debootstrap makes it, chroot enters it. Only root can do either.

Each command has its own mount namespace, whose mounts end with it, so that the folder can be
deleted at any time. The system uses this machine's mirror of Debian, and trusts its certificates.
Standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from paths import ROOT
from refusal import Refusal, refusing_os_errors
from systems.output import told

CLONE = Path("/home/clone")  # where the repository is in the system
USER = "user"  # a user of the system who is not root
_MADE = "made-by-debootstrap"
_CERTIFICATES = "/etc/certificates-of-the-host.crt"
_ON_THE_HOST = Path("/etc/ssl/certs/ca-certificates.crt")
# The index of a mirror that was not updated for weeks counts as expired.
_APT = 'Acquire::Check-Valid-Until "false";\nAPT::Install-Recommends "false";\n'
_ENTER = """
set -e
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
root=$1 user=$2
shift 2
exec chroot --userspec="$user" "$root" "$@"
"""


def require(*programs: str) -> None:
    """Checks that the programs to make and enter a system are here.

    Raises:
      Refusal: this is not root, or a program is missing.
    """
    if os.geteuid() != 0:
        raise Refusal("only root can make a system in a folder: run this as root")
    for program in programs:
        if shutil.which(program) is None:
            raise Refusal(f"{program} is missing; install the Debian package of that name")


def made(root: Path, suite: str, *packages: str) -> Path:
    """Makes the system, unless it is there, and installs packages in it.

    Raises:
      Refusal: this is not root, or the system cannot be made.
    """
    require("debootstrap")
    if not (root / _MADE).is_file():
        with refusing_os_errors(f"make {root}"):
            shutil.rmtree(root, ignore_errors=True)
            cache = root.parent / "packages"
            cache.mkdir(parents=True, exist_ok=True)
        # This debootstrap may not know the suite's name. Its script for sid fits all of them.
        names = [suite, str(root), mirror(), "sid"]
        told(["debootstrap", "--variant=minbase", f"--cache-dir={cache}", *names])
        (root / "etc/apt/apt.conf.d/99made").write_text(_APT)
        run(root, ["useradd", "--create-home", USER])
        (root / _MADE).touch()
    if packages:
        run(root, ["apt-get", "update", "-q"])
        run(root, ["apt-get", "install", "--yes", "-q", *packages])
    return root


def run(
    root: Path,
    command: Sequence[str | Path],
    *,
    user: str = "root",
    cwd: Path = Path("/"),
    settings: Mapping[str, str] | None = None,
    fails: bool = False,
) -> str:
    """Runs a command in the system, shows its output, and returns it.

    Args:
      fails: whether the command may fail.

    Raises:
      Refusal: it failed, and may not.
    """
    with refusing_os_errors(f"write to {root}"):
        # jax.distributed looks up its other processes by this machine's name.
        for name in ("etc/hosts", "etc/resolv.conf"):
            shutil.copyfile(Path("/", name), root / name)
        shutil.copyfile(_ON_THE_HOST, root / _CERTIFICATES.lstrip("/"))
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root" if user == "root" else f"/home/{user}",
        "LANG": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
        "PIP_CERT": _CERTIFICATES,
        "SSL_CERT_FILE": _CERTIFICATES,
        **(settings or {}),
    }
    inside = ["env", "--ignore-environment", f"--chdir={cwd}"]
    inside += [f"{name}={value}" for name, value in environment.items()]
    outside = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, "sh"]
    return told([*outside, str(root), user, *inside, *map(str, command)], fails=fails)


def copy_repository(root: Path, user: str = "root") -> None:
    """Copies the repository into the system, where `user` owns it.

    Raises:
      Refusal: it cannot be copied.
    """
    copy_files(root)
    run(root, ["chown", "--recursive", f"{user}:{user}", str(CLONE)])


def copy_files(root: Path) -> None:
    """Copies the repository's files as they are here, without what was built from them.

    Raises:
      Refusal: they cannot be copied, or this is not a git checkout.
    """
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others"]
    listed = subprocess.run([*command, "--exclude-standard"], capture_output=True, check=False)
    if listed.returncode != 0:
        raise Refusal(f"{ROOT}: is not a git checkout; clone the repository with git")
    target = root / CLONE.relative_to("/")
    with refusing_os_errors(f"copy the repository to {target}"):
        # What was built there before stays, and is reused if its sources are the same.
        for name in filter(None, listed.stdout.decode().split("\0")):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_file():
                shutil.copy2(ROOT / name, target / name)


def mirror() -> str:
    """The mirror of Debian that apt uses on this machine.

    Raises:
      Refusal: apt has none.
    """
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    wanted = ["Created-By: Packages", "Component: main", "Label: Debian"]
    with refusing_os_errors("run apt-get"):
        asked = subprocess.run([*command, *wanted], capture_output=True, text=True, check=False)
    for line in asked.stdout.splitlines():
        return line.strip()
    raise Refusal("apt-get has no mirror of Debian here; run apt-get update first")
