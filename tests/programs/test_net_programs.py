"""
Programs in Go, which make system calls without libc, under `dflock run --net=on` on two hosts; and (the control) with the preload alone, which
does not reach them. Rust: cluster/test_net_around.py.
"""
import os
import re
import shutil
import subprocess
import zipfile

import pytest
from harness import bytes_of, text_of, wait_until, write_text
from harness.host import CLI
from harness.processes import stat

from installed import needs

NETTED = [CLI, "run", "--net=on", "--"]


@pytest.fixture(params=["net", "preload"])
def pair(request, make_pair):
    """It excludes where there is the net."""
    net = request.param == "net"
    return make_pair(net, NETTED if net else [], shim=not net)


def heard(job, text):
    """Reads what the job says until there is this text, and returns what was said."""
    said = []
    while not said or text not in said[-1]:
        line = job.line()
        assert line is not None, f"{job.process.args} has ended without {text!r}: {said}"
        said.append(line)
    return said


def fifo_opened(path):
    """Waits until a program reads this pipe, and opens it for writing: the program goes on when it is closed."""
    def look():
        try:
            return [os.open(path, os.O_WRONLY | os.O_NONBLOCK)]
        except OSError:
            return None
    return os.fdopen(wait_until(look, f"{path} is read", 30)[0], "wb")


def lock_of(pid, path):
    """Has the process, or one of its session, a kernel lock on this file?"""
    inode = f":{os.stat(path).st_ino} "
    with open("/proc/locks") as f:
        return any(inode in line and "->" not in line and pid in (int(line.split()[4]), int((stat(line.split()[4]) or [0] * 4)[3])) for line in f)


def site(host, pause):
    """A site for hugo, whose only page has what is read of a pipe, or of a file."""
    os.makedirs(host.path("site/layouts"))
    with open(host.path("site/conf.toml"), "w") as f:
        f.write('baseURL = "http://example.org/"\ndisableKinds = ["taxonomy", "term", "sitemap", "RSS", "404"]\n')
    write_text(host.path("site/layouts/index.html"), '{{ readFile "pause" }}')
    if pause:
        os.mkfifo(host.path("site/pause"))
    else:
        write_text(host.path("site/pause"), "of b")
    return ["hugo", "-s", host.path("site"), "--config", host.path("site/conf.toml")]


def check_waits(pair, first, start, recalled, made, go):
    """The second, as long as the first one holds. go(): lets the first go on."""
    second = start()
    if pair.excludes:
        wait_until(lambda: [l for l in pair.leases(pair.a, "wanted by another host") if l["name"].endswith(recalled)], "a's lease is recalled")
        assert not os.path.exists(pair.b.path(made)) and second.process.poll() is None
    else:
        assert second.end() == 0
    go()
    assert first.end() == 0 and (not pair.excludes or second.end() == 0)


@needs("hugo", "hugo")
def test_hugo_waits_for_a_build(pair):
    """flock() on .hugo_build.lock, as long as it builds."""
    first = pair.job(pair.a, *site(pair.a, True))
    with fifo_opened(pair.a.path("site/pause")) as pause:
        wait_until(lambda: lock_of(first.pid, pair.a.path("site/.hugo_build.lock")), "it has the lock")
        check_waits(pair, first, lambda: pair.job(pair.b, *site(pair.b, False)), ".hugo_build.lock", "site/public/index.html",
                    lambda: (pause.write(b"of a"), pause.close()))
    for host in (pair.a, pair.b):
        assert text_of(host.path("site/public/index.html")) == "of " + host.name


def module(host, folder, pause):
    """A module in a folder of files, as `go mod download` asks for it; the file with its sources is a pipe or not."""
    there = os.path.join(folder, "proxy-" + host.name, "example.com/m/@v")
    os.makedirs(there)
    sources = os.path.join(folder, "sources.zip")
    with zipfile.ZipFile(sources, "w") as z:
        z.writestr("example.com/m@v1.0.0/go.mod", "module example.com/m\n")
    for name, text in (("list", "v1.0.0\n"), ("v1.0.0.info", '{"Version":"v1.0.0"}'), ("v1.0.0.mod", "module example.com/m\n")):
        write_text(os.path.join(there, name), text)
    if pause:
        os.mkfifo(os.path.join(there, "v1.0.0.zip"))
    else:
        shutil.copy(sources, os.path.join(there, "v1.0.0.zip"))
    proxy = os.path.join(folder, "proxy-" + host.name)
    return ["env", f"HOME={folder}/home", f"GOPROXY=file://{proxy}", "GOSUMDB=off", "GOTOOLCHAIN=local", f"GOMODCACHE={host.path('go')}",
            "GOFLAGS=-modcacherw", f"GOPATH={folder}/gopath", "go", "mod", "download", "example.com/m@v1.0.0"], os.path.join(there, "v1.0.0.zip")


@needs("go", "golang-go")
def test_go_waits_for_a_download(pair, folder):
    """flock() on the module's .lock, as long as it is downloaded (cmd/go/internal/lockedfile)."""
    words, pause = module(pair.a, folder, True)
    first = pair.job(pair.a, *words, cwd=folder)
    with fifo_opened(pause) as sources:
        wait_until(lambda: lock_of(first.pid, pair.a.path("go/cache/download/example.com/m/@v/v1.0.0.lock")), "it has the lock")
        check_waits(pair, first, lambda: pair.job(pair.b, *module(pair.b, folder, False)[0], cwd=folder), "v1.0.0.lock", "go/example.com/m@v1.0.0",
                    lambda: (sources.write(bytes_of(os.path.join(folder, "sources.zip"))), sources.close()))
    assert all(os.path.exists(host.path("go/example.com/m@v1.0.0/go.mod")) for host in (pair.a, pair.b))


def syncthing(host, folder):
    """A home that talks to nobody; what serves it, and what reads its database."""
    home = host.path("syncthing")
    subprocess.run(["syncthing", "generate", "--home=" + home, "--no-default-folder"], check=True, capture_output=True,
                   env={**os.environ, "HOME": folder})
    text = text_of(os.path.join(home, "config.xml"))
    for name in ("globalAnnounceEnabled", "localAnnounceEnabled", "relaysEnabled", "natEnabled", "crashReportingEnabled"):
        text = text.replace(f"<{name}>true<", f"<{name}>false<")
    write_text(os.path.join(home, "config.xml"), text.replace("<listenAddress>default<", "<listenAddress>tcp://127.0.0.1:0<"))
    env = ["env", f"HOME={folder}", "STNODEFAULTFOLDER=1", "STNOUPGRADE=1", "syncthing"]
    return ([*env, "serve", "--home=" + home, "--no-browser", "--no-restart", f"--gui-address=unix://{folder}/gui-{host.name}"],
            [*env, "cli", "--home=" + home, "debug", "index", "dump"])


@needs("syncthing", "syncthing")
def test_syncthing_is_refused(pair, folder):
    """flock() on its database's LOCK, as long as it runs; does not wait."""
    serve, _ = syncthing(pair.a, folder)
    again, look = syncthing(pair.b, folder)
    first = pair.job(pair.a, *serve)
    heard(first, "GUI and API listening")
    if pair.excludes:
        done = pair.run(pair.b, *again)
        assert done.returncode != 0 and re.search("is another (instance of )?Syncthing .*running", done.stdout + done.stderr), done
        assert pair.run(pair.b, *look).returncode != 0
        first.kill()
    second = pair.job(pair.b, *again)
    heard(second, "GUI and API listening")
    second.kill()


def rclone(host, folder, *words):
    """A remote that keeps sums of files in a bbolt database below the cache."""
    os.makedirs(os.path.join(folder, "data-" + host.name), exist_ok=True)
    write_text(os.path.join(folder, "data-" + host.name, "x"), "x\n")
    return ["env", f"HOME={folder}", "RCLONE_CONFIG_H_TYPE=hasher", f"RCLONE_CONFIG_H_REMOTE={folder}/data-{host.name}", "rclone",
            f"--config={folder}/none.conf", "--cache-dir=" + host.path("rclone"), *words]


@needs("rclone", "rclone")
def test_rclone_is_refused(pair, folder):
    """flock() on the database of a hasher, as long as it needs it and for --kv-lock-time more; tries it twenty times."""
    sums = os.path.join(folder, "sums")
    write_text(sums, "d41d8cd98f00b204e9800998ecf8427e  x\n")
    write_text(os.path.join(folder, "y"), "other\n")
    for host in (pair.a, pair.b):
        assert pair.run(host, *rclone(host, folder, "backend", "import", "h:", "md5", sums)).returncode == 0
    # It has looked into the database, and asks.
    first = pair.job(pair.a, *rclone(pair.a, folder, "--kv-lock-time=1h", "--interactive", "--checksum", "copyto", f"{folder}/y", "h:x"))
    heard(first, "q) Exit rclone now")
    wait_until(lambda: lock_of(first.pid, pair.a.path("rclone/kv/local~hasher.bolt")), "it has the lock")
    # Its exit status does not tell.
    work = rclone(pair.b, folder, "--kv-lock-time=20ms", "backend", "import", "h:", "md5", sums)
    assert ("timeout" in pair.run(pair.b, *work).stderr) == pair.excludes
    first.end()
    assert "timeout" not in pair.run(pair.b, *work).stderr


def etcd(host):
    """Its sockets are in its working directory: etcd takes no paths."""
    names = [f"unix://{host.name}{kind}:0" for kind in "cp"]
    return ["etcd", "--data-dir=" + host.path("etcd"), "--listen-client-urls=" + names[0], "--advertise-client-urls=" + names[0],
            "--listen-peer-urls=" + names[1], "--initial-advertise-peer-urls=" + names[1], "--initial-cluster=default=" + names[1]]


@needs("etcd", "etcd-server")
def test_etcd_waits(pair, folder):
    """bbolt: flock() without waiting, again and again; and OFD locks of its log."""
    first = pair.job(pair.a, *etcd(pair.a), cwd=folder)
    heard(first, "eady to serve client requests")
    second = pair.job(pair.b, *etcd(pair.b), cwd=folder)
    if pair.excludes:
        heard(second, "another etcd process is using")
        first.kill()
    heard(second, "eady to serve client requests")
    second.kill()
