"""Programs that have another layer between them and the kernel: fakeroot's preload, AddressSanitizer, seccomp."""
import json
import os
import shutil
import signal
import subprocess

import pytest
from harness import BUILD, Redis
from harness.host import CLI, KEEPER, SHIM

NOBODY = 65534
PROGRAM = r"""
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
int main(int argc, char **argv)
{
	int fd = open(argv[argc - 1], O_RDWR | O_CREAT, 0600);

	printf("%d\n", flock(fd, LOCK_EX | LOCK_NB));
	return 0;
}
"""


@pytest.fixture
def open_host(folder, host_of):
    """A host whose keeper is started by its first program."""
    server = Redis(folder, "--unixsocketperm", "777")
    os.chmod(folder, 0o755)
    host = host_of(server, foreground=False, lease="ttl_ms = 1000;")
    for path in (host.runtime, host.files):
        os.chown(path, NOBODY, NOBODY)
    yield host
    host.stop()
    server.stop()


@pytest.mark.root("runs programs as another user, and so needs root")
@pytest.mark.parametrize("order", ["dflock outside", "dflock inside"])
def test_fakeroot(open_host, order):
    """It tells programs that they are root; the library must not believe that."""
    host, path = open_host, open_host.path("f")
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    held = f"flock {path} sh -c 'id -u; env -u LD_PRELOAD {os.path.dirname(SHIM)}/dflock status'"
    if order == "dflock outside":
        done = host.run(*user, "fakeroot", "sh", "-c", held)
    else:
        env = {k: v for k, v in host.env().items() if k != "LD_PRELOAD"}
        done = subprocess.run([*user, "fakeroot", "sh", "-c", f'LD_PRELOAD="$LD_PRELOAD {SHIM}" {held}'], env=env, text=True,
                              capture_output=True, timeout=60)
    assert done.returncode == 0 and all("the store is in grace" in l for l in done.stderr.splitlines()), done  # it is new
    assert done.stdout.startswith("0\n") and path in done.stdout, done.stdout


@pytest.mark.root("runs programs as another user, and so needs root")
@pytest.mark.skipif(os.path.exists("/run/dflock/keeper.sock"), reason="a system keeper serves every user")
def test_keeper_below_fakeroot(open_host):
    """Keeper, command and programs go by the real user, inside and outside: it decides on directory and configuration."""
    uid, path = 1900000000 + os.getpid(), open_host.path("f")
    env = {k: v for k, v in open_host.env().items() if k not in ("DFLOCK_RUNTIME_DIR", "LD_PRELOAD")}
    for name in (open_host.files, f"/dev/shm/dflock-{uid}"):
        os.makedirs(name, 0o700, exist_ok=True)
        os.chown(name, uid, uid)

    def run(*words):
        done = subprocess.run(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *words], env=env, text=True,
                              capture_output=True, timeout=60)
        assert done.returncode == 0, done
        return done.stdout

    try:
        run("fakeroot", KEEPER)
        seen = json.loads(run("fakeroot", CLI, "status", "--json"))
        assert seen["uid"] == uid and run("fakeroot", CLI, "run", "sh", "-c", f"flock {path} id -u") == "0\n"
        outside = json.loads(run(CLI, "status", "--json"))
        assert [l["path"] for l in outside["leases"]] == [path] and outside["pid"] == seen["pid"]
    finally:
        run(CLI, "stop")
        shutil.rmtree(f"/dev/shm/dflock-{uid}")


def test_address_sanitizer(make_host, folder):
    """As libdflock(7) says: a runtime that is linked in goes along with a preload; gcc's shared one wants to come first."""
    def built(compiler):
        program = os.path.join(folder, compiler)
        subprocess.run([compiler, "-fsanitize=address", "-x", "c", "-o", program, "-"], input=PROGRAM, text=True, check=True)
        return program

    host = make_host("a", lease="ttl_ms = 20000; linger_ms = 20000;")
    assert host.run(built("clang"), host.path("f")).stdout == "0\n"
    gcc = built("gcc")
    plain = host.run(gcc, host.path("f"))
    assert plain.returncode != 0 and "does not come first" in plain.stderr
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
    for more in ({"LD_PRELOAD": f"{runtime} {SHIM}"}, {"ASAN_OPTIONS": "verify_asan_link_order=0"}):
        done = subprocess.run([gcc, host.path("g")], env={**host.env(), **more}, capture_output=True, text=True, timeout=60)
        assert done.stdout == "0\n", done
    assert {l["name"] for l in host.status()["leases"]} == {"t/f", "t/g"}


def test_a_seccomp_filter_on_socket(make_host, folder):
    """Unprotected locks need no socket, nor do locks that the page has a lease for; for the others the filter's verdict counts."""
    host = make_host("a", lease="ttl_ms = 20000;")

    def locks(verdict, path):
        number = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
        return host.run(os.path.join(BUILD, "tests/agents/older"), f"{number}:{verdict}", "flock", "-n", path, "echo", "locked")

    for verdict in ("kill", "EPERM"):
        assert locks(verdict, os.path.join(folder, "unprotected")).stdout == "locked\n"
    assert locks("kill", host.path("f")).returncode == -signal.SIGSYS
    refused = locks("EPERM", host.path("f"))
    assert refused.stdout == "" and "no connection to the keeper can be made" in refused.stderr, refused
    assert host.run("flock", host.path("f"), "true").returncode == 0
    assert locks("kill", host.path("f")).stdout == "locked\n"
