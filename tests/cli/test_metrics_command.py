"""`dflock metrics` as a command: its text, and the file for node_exporter, of which nobody ever sees a half."""
import json
import os
import re
import signal
import stat
import subprocess
import threading

import pytest
from harness import text_of, write_text
from harness.host import CLI, ROOT
from harness.metrics import metrics, parsed, promtool

PROMETHEUS = os.path.join(ROOT, "packaging/prometheus")


@pytest.fixture
def textfiles(folder):
    path = os.path.join(folder, "textfile")
    os.mkdir(path)
    return path


def file_of(folder):
    return text_of(os.path.join(folder, "dflock.prom"))


def write_to(host, folder, **more):
    return host.cli("metrics", "--textfile", folder, **more)


def test_every_metric_is_there(make_host, folder):
    """HELP, TYPE and a sample for each that the table has; histograms add up. The examples use these: each alert once, and each panel of the
    dashboard asks for what Prometheus can read, and lies over no other one."""
    assert promtool("# TYPE dflock_waits counter\ndflock_waits 1\n")[0] != 0, "promtool finds a mistake"
    text = make_host("a").cli("metrics").stdout
    assert promtool(text) == (0, "")
    values = parsed(text)
    assert values["dflock_up"] == 1 and len(values) < 400
    names = re.findall(r'^\t\{"([a-z_]+)"', text_of(os.path.join(ROOT, "cli/metrics.c")), re.M)
    assert len(names) > 40
    assert re.findall(r"^# TYPE dflock_([a-z_]+) ", text, re.M) == names
    for name in names:
        assert any(re.fullmatch(rf"dflock_{name}(_count)?(\{{.*\}})?", key) for key in values), name
    for key in values:
        if re.match(r"dflock_\w+_count\b", key):
            bucket = re.sub(r"_count(\{(.*)\})?$", lambda m: "_bucket{" + (m[2] + "," if m[2] else "") + 'le="+Inf"}', key)
            assert values[bucket] == values[key], key
    known = {re.sub(r"\{.*", "", key) for key in values}
    alerts = os.path.join(PROMETHEUS, "dflock.rules.yml")
    used = re.findall(r"^    expr: (.*)", text_of(alerts), re.M)
    titles = re.findall(r"^  - alert: (\w+)", text_of(alerts), re.M)
    assert len(titles) == len(set(titles)) == text_of(alerts).count("      description: >-") == text_of(alerts).count("      summary: ")
    cases = os.path.join(ROOT, "tests/cli/alerts.test.yml")
    assert f"value: {len(titles)}}}]}}\n" in text_of(cases), "all of them fire there"
    panels = json.loads(text_of(os.path.join(PROMETHEUS, "grafana.json")))["panels"]
    exprs = [target["expr"] for panel in panels for target in panel["targets"]]
    assert {name for expr in used + exprs for name in re.findall(r"dflock_[a-z_]+", expr)} <= known
    rules = os.path.join(folder, "rules.yml")
    write_text(rules, json.dumps({"groups": [{"name": "panels", "rules": [{"record": f"panel:{i}", "expr": e} for i, e in enumerate(exprs)]}]}))
    for words in ["check", "rules", "--lint=none", rules], ["check", "rules", alerts], ["test", "rules", cases]:
        done = subprocess.run(["promtool", *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    places = [(x, y) for p in panels for g in [p["gridPos"]] for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])]
    assert len(places) == len(set(places)) and max(x for x, _ in places) < 24


def test_the_keeper_is_away(host_of, textfiles):
    a = host_of("unix:/none", foreground=False)
    done = a.cli("metrics")
    assert done.stderr == "" and promtool(done.stdout) == (0, "") and write_to(a, textfiles).stdout == ""
    for text in done.stdout, file_of(textfiles):
        assert {k: v for k, v in parsed(text).items() if not k.startswith("dflock_build_info")} == {"dflock_up": 0.0}


def test_textfile(make_host, textfiles, folder):
    """Readable for node_exporter, whatever the umask is, and nothing else stays there. A link in place of the new file is not followed; one in
    place of the file is replaced. A directory that is none is named."""
    a = make_host("a")
    victim = os.path.join(folder, "victim")
    write_text(victim, "mine")
    for name in (".dflock.prom.new", "dflock.prom"):
        os.symlink(victim, os.path.join(textfiles, name))
    old = os.umask(0o077)
    try:
        done = write_to(a, textfiles)
    finally:
        os.umask(old)
    assert (done.stdout, done.stderr) == ("", "")
    assert text_of(victim) == "mine" and os.listdir(textfiles) == ["dflock.prom"]
    mode = os.lstat(os.path.join(textfiles, "dflock.prom")).st_mode
    assert stat.S_ISREG(mode) and stat.S_IMODE(mode) == 0o644
    assert promtool(file_of(textfiles)) == (0, "")
    assert set(parsed(file_of(textfiles))) == set(metrics(a))
    for path, why in (folder + "/missing", "No such file or directory"), (victim, "Not a directory"):
        done = write_to(a, path, check=False)
        assert done.returncode == 1
        assert done.stderr == f"dflock: {path}: {why}; --textfile takes the directory that node_exporter's --collector.textfile.directory names\n"


@pytest.mark.root("mounts a file system")
def test_a_full_file_system(make_host, folder):
    a = make_host("a")
    small = os.path.join(folder, "small")
    os.mkdir(small)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "none", small], check=True)
    try:
        write_to(a, small)
        before = file_of(small)
        with open(os.path.join(small, "full"), "wb", buffering=0) as f, pytest.raises(OSError):
            while True:
                f.write(b"x" * 4096)
        done = write_to(a, small, check=False)
        assert done.returncode == 1
        assert done.stderr == f"dflock: {small}/dflock.prom cannot be written, and stays as it was: No space left on device\n"
        assert file_of(small) == before and sorted(os.listdir(small)) == ["dflock.prom", "full"]
    finally:
        subprocess.run(["umount", small], check=True)


# --- killed in the middle ---


class Reader:
    """Reads the file again and again, as node_exporter does; whole is what each text must be."""

    def __init__(self, folder):
        self.folder, self.wrong, self.reads, self.over = folder, [], 0, threading.Event()
        self.last = file_of(folder).splitlines()[-1].split(" ")[0]
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.is_set() and not self.wrong:
            text = file_of(self.folder)
            self.reads += 1
            if not text.endswith("\n") or not text.splitlines()[-1].startswith(self.last + " "):
                self.wrong.append(text)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        assert not self.wrong and self.reads


# The system calls from the file's making to its name; the text takes several writes.
STEPS = [("unlinkat", 1), ("openat", "last"), ("write", 1), ("write", 2), ("write", 3), ("fchmod", 1), ("renameat", 1)]


def test_killed_at_each_step(make_host, textfiles):
    """strace kills it when it begins the call. The file stays whole, and the next dflock mends what is left."""
    a = make_host("a")
    write_to(a, textfiles)
    command = [CLI, "metrics", "--textfile", textfiles]
    for call, which in STEPS:
        if which == "last":  # the one that makes the new file
            trace = subprocess.run(["strace", "-e", "trace=openat", *command], env=a.plain_env(), capture_output=True, text=True)
            opens = [l for l in trace.stderr.splitlines() if l.startswith("openat(")]
            which = 1 + next(i for i, l in enumerate(opens) if "dflock.prom.new" in l)
        with Reader(textfiles):
            done = subprocess.run(["strace", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={which}", *command],
                                  env=a.plain_env(), timeout=60)
            assert done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), call
            assert set(os.listdir(textfiles)) <= {"dflock.prom", ".dflock.prom.new"}
            write_to(a, textfiles)
        assert os.listdir(textfiles) == ["dflock.prom"]
        parsed(file_of(textfiles))


def test_many_at_a_time_and_killed(make_host, textfiles):
    """They write the same file, and some are killed anywhere."""
    a = make_host("a")
    write_to(a, textfiles)
    with Reader(textfiles):
        for _ in range(20):
            writers = [subprocess.Popen([CLI, "metrics", "--textfile", textfiles], env=a.plain_env(), stderr=subprocess.PIPE) for _ in range(4)]
            for writer in writers[:2]:
                writer.send_signal(signal.SIGKILL)
            for writer in writers:
                _, said = writer.communicate(timeout=60)
                assert said == b"" and writer.returncode in (0, -signal.SIGKILL)
            assert [w.returncode for w in writers[2:]] == [0, 0]
    assert os.listdir(textfiles) == ["dflock.prom"]


def test_a_directory_that_stays_locked(make_host, textfiles):
    a = make_host("a", shim=False)
    holder = a.popen("flock", textfiles, "sh", "-c", "echo held; read line", stdin=subprocess.PIPE)
    assert holder.stdout.readline() == "held\n"
    done = write_to(a, textfiles, check=False)
    assert done.returncode == 1 and "another process has had a lock on this directory for 5 s" in done.stderr
    holder.communicate("\n", timeout=20)
    write_to(a, textfiles)
