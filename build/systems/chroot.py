"""A Debian system in a folder: made by debootstrap, and entered by chroot, as root only.

What is mounted in it is so in a mount namespace of the command's own, and gone when that ends: the
folder can be deleted at any time. It asks the mirror that this machine's apt asks, and trusts the
certificates that this machine trusts. Standard library only.
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

CLONE = Path("/home/clone")  # where the repository is in it
USER = "user"  # who is not root there
_MADE = "made-by-debootstrap"
_CERTIFICATES = "/etc/certificates-of-the-host.crt"
_ON_THE_HOST = Path("/etc/ssl/certs/ca-certificates.crt")
# A mirror may stand still for weeks, after which apt calls its index expired.
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
    """Looks for what a system is made and entered with.

    Raises:
      Refusal: this is not root, or a program is missing.
    """
    if os.geteuid() != 0:
        raise Refusal("only root can make a system in a folder: run this as root")
    for program in programs:
        if shutil.which(program) is None:
            raise Refusal(f"{program} is missing; install the Debian package of that name")


def made(root: Path, suite: str, *packages: str) -> Path:
    """Makes the system, from nothing unless it is there, and installs packages in it.

    Raises:
      Refusal: this is not root, or the system cannot be made.
    """
    require("debootstrap")
    if not (root / _MADE).is_file():
        with refusing_os_errors(f"make {root}"):
            shutil.rmtree(root, ignore_errors=True)
            cache = root.parent / "packages"
            cache.mkdir(parents=True, exist_ok=True)
        # This debootstrap may not know the suite's name; all of them are made as sid is.
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
    """Runs a command in it, shows what it says, and returns that.

    Args:
      fails: whether it may end with a status that is not 0.

    Raises:
      Refusal: it did, and may not.
    """
    with refusing_os_errors(f"write to {root}"):
        # The other processes of a jax.distributed run are looked up by this machine's own name.
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
    """Copies the repository there, and makes it a user's.

    Raises:
      Refusal: it cannot be copied.
    """
    copy_files(root)
    run(root, ["chown", "--recursive", f"{user}:{user}", str(CLONE)])


def copy_files(root: Path) -> None:
    """Copies the repository's files, as they are here, and nothing that was built of them.

    Raises:
      Refusal: they cannot be copied, or this is not a git checkout.
    """
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others"]
    listed = subprocess.run([*command, "--exclude-standard"], capture_output=True, check=False)
    if listed.returncode != 0:
        raise Refusal(f"{ROOT}: is not a git checkout, which has to say which files are its own")
    target = root / CLONE.relative_to("/")
    with refusing_os_errors(f"copy the repository to {target}"):
        # What was built there before stays: it is found by content.
        for name in filter(None, listed.stdout.decode().split("\0")):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_file():
                shutil.copy2(ROOT / name, target / name)


def mirror() -> str:
    """Where this machine's apt has Debian from.

    Raises:
      Refusal: it does not say.
    """
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    wanted = ["Created-By: Packages", "Component: main", "Label: Debian"]
    with refusing_os_errors("run apt-get"):
        asked = subprocess.run([*command, *wanted], capture_output=True, text=True, check=False)
    for line in asked.stdout.splitlines():
        return line.strip()
    raise Refusal("apt-get names no mirror of Debian's; run apt-get update first")
