"""`dflock status --watch` and `dflock top`, on a terminal and elsewhere; `dflock status --html`, in a browser."""
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios

import pyte
import pytest
from harness import Job, text_of, wait_until, write_text
from harness.job import holder
from harness.host import CLI

CLOCK = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


class Terminal:
    """A terminal on which a command runs, all that it wrote there, and what a person sees."""

    def __init__(self, host, *words, rows=24, columns=120, before=()):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.text, self.screen = "", pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        # Debian 13's pytest-xdist says in the environment how large its own terminal is.
        env = {k: v for k, v in host.plain_env(TERM="xterm").items() if k not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen([*before, CLI, *words], env=env, stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def read(self):
        while select.select([self.master], [], [], 0)[0]:
            got = os.read(self.master, 65536)
            self.text += got.decode(errors="replace")
            self.stream.feed(got)
        return self.text

    def shows(self, pattern, times=1):
        wait_until(lambda: len(re.findall(pattern, self.read())) >= times, f"{pattern} is shown {times} times")

    def row(self, *parts):
        """The first line of the screen that has all of these words, as soon as there is one."""
        try:
            return wait_until(lambda: self.read() and next((line for line in self.screen.display if all(part in line for part in parts)), None),
                              f"a line has {parts}")
        except AssertionError as e:
            raise AssertionError("\n".join([str(e), *self.screen.display])) from None

    def gone(self, part):
        wait_until(lambda: self.read() and not any(part in line for line in self.screen.display), f"{part} is gone")

    def first(self, *parts):
        """In which order the texts stand on the screen."""
        self.read()
        whole = "\n".join(self.screen.display)
        return sorted(parts, key=whole.index)

    def press(self, keys):
        os.write(self.master, keys.encode())

    def ended(self):
        """Its exit status; the terminal is as it was."""
        # It waits until the terminal has taken all.
        wait_until(lambda: self.read() is not None and self.process.poll() is not None, "it has ended")
        self.read()
        assert self.flags() == self.before[3]
        return self.process.returncode

    def flags(self):
        return termios.tcgetattr(self.slave)[3]

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal():
    made = []

    def make(*words, **more):
        made.append(Terminal(*words, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


# --- status --watch ---

def test_watch(make_host, terminal):
    """In place, no more lines than the terminal has; another key shows it at once; q and signals leave the terminal as it was."""
    a = make_host("a", lease="ttl_ms = 20000; linger_ms = 60000;")
    s = terminal(a, "status", "--watch=1", rows=20, columns=80)
    s.shows(rf"\x1b\[H{CLOCK}\x1b\[K\r\n", times=3)  # each over the one before
    assert s.text.startswith("\x1b[?1049h\x1b[?25l") and s.flags() != s.before[3]
    s.press("q")
    assert s.ended() == 0
    last = s.text.split("\x1b[?25h\x1b[?1049l")[1]  # the last status stays to be read
    assert "this host has no leases" in last and "\x1b" not in last
    s = terminal(a, "status", "--watch=3600")
    for key, times in ("", 1), (" ", 2):
        s.press(key)
        s.shows(r"\x1b\[H\d{4}-", times=times)
    s.press("Q")
    assert s.ended() == 0
    for number in signal.SIGINT, signal.SIGTERM:
        s = terminal(a, "status", "--watch")
        s.shows(r"\x1b\[H\d{4}-")
        s.process.send_signal(number)
        assert s.ended() == 128 + number and "\x1b[?1049l" in s.text
    for i in range(30):
        assert a.run("flock", a.path(f"f{i}"), "true").returncode == 0
    s = terminal(a, "status", "--watch", rows=20, columns=80)
    s.shows(r"\(\d+ more lines\)\x1b\[K\r\n\x1b\[J")
    assert s.text.split("\x1b[H")[1].split("\x1b[J")[0].count("\r\n") == 19


def test_a_signal_while_the_keeper_is_asked(make_host, terminal):
    """It ends the watch when the answer has come, and not after the time between two looks."""
    a = make_host("a", lease="ttl_ms = 60000;")
    s = terminal(a, "status", "--watch=3600")
    s.shows(r"\x1b\[H\d{4}-")
    files = f"/proc/{s.process.pid}/fd"
    before, keeper = len(os.listdir(files)), a.keeper_pids()[1]
    os.kill(keeper, signal.SIGSTOP)
    s.press(" ")
    wait_until(lambda: len(os.listdir(files)) > before, "it has connected")
    s.process.send_signal(signal.SIGINT)
    wait_until(lambda: "SigPnd:\t0000000000000000\nShdPnd:\t0000000000000000" in text_of(f"/proc/{s.process.pid}/status"), "it has the signal")
    os.kill(keeper, signal.SIGCONT)
    assert s.ended() == 128 + signal.SIGINT


def test_watch_is_stopped(make_host, terminal):
    """By Ctrl-Z: the shell gets the terminal as it was, and gives it back. What is ignored from the start stays so."""
    a = make_host("a")
    s = terminal(a, "status", "--watch", before=["bash", "--norc", "--noprofile", "-ic", '"$@"; echo "stopped $?"; fg; echo "ended $?"', "bash"])
    s.shows(r"\x1b\[H\d{4}-")
    s.press("\x1a")
    s.shows("stopped 148")
    assert "\x1b[?25h\x1b[?1049l" in s.text.split("stopped 148")[0]
    s.shows(r"stopped 148[\s\S]*\x1b\[\?1049h[\s\S]*\x1b\[H\d{4}-")
    s.press("q")
    s.shows("ended 0")
    assert s.ended() == 0
    s = terminal(a, "status", "--watch=1", before=["sh", "-c", 'trap "" INT; exec "$@"', "sh"])
    s.shows(r"\x1b\[H\d{4}-")
    s.press("\x03")
    s.shows(r"\x1b\[H\d{4}-", times=3)
    s.press("q")
    assert s.ended() == 0


def test_a_keeper_that_comes_and_goes(terminal, host_of):
    a = host_of("unix:/none", foreground=False)
    s, top = terminal(a, "status", "--watch=1"), terminal(a, "top")
    s.shows("no keeper runs for")
    top.row("no keeper runs for")
    top.press("\nbq")
    assert top.ended() == 0
    a.start()
    s.shows("store   unix:/none, DOWN")
    s.press("q")
    assert s.ended() == 0


def test_not_on_a_terminal(make_host):
    a = make_host("a")
    with subprocess.Popen([CLI, "status", "--watch=1"], env=a.plain_env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as p:
        text = "".join(p.stdout.readline() for _ in range(20))
        p.stdout.close()  # as `| head` does
        assert p.wait(20) == -signal.SIGPIPE
    assert "\x1b" not in text and len(re.findall(rf"^{CLOCK}$", text, re.M)) >= 2
    done = a.cli("top", check=False)
    assert done.returncode == 1 and "this is no terminal on which a screen can be drawn" in done.stderr, done


@pytest.mark.parametrize("words, said", [
    *((["status", "--watch=" + s], f"--watch takes from 1 to 3600 seconds, not {s}") for s in ("0", "-1", "x", "3601", "1e3", "5s")),
    *((["top", "--seconds=" + s], f"dflock: --seconds takes from 1 to 3600, not {s}\n") for s in ("0", "0.5", "2x"))])
def test_seconds(host_of, words, said):
    done = host_of("unix:/none", foreground=False).cli(*words, check=False)
    assert done.returncode == 2 and said in done.stderr


CLOSES = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(sys.argv[1])
s.listen()
s.setblocking(True)
print("listens", flush=True)
while True:
    s.accept()[0].close()
"""


def test_a_keeper_that_closes_the_connection(host_of):
    """No bare "Broken pipe"."""
    a = host_of("unix:/none", foreground=False)
    with subprocess.Popen(["python3", "-c", CLOSES, os.path.join(a.runtime, "keeper.sock")], stdout=subprocess.PIPE, text=True) as listener:
        try:
            assert listener.stdout.readline() == "listens\n"
            for _ in range(50):
                done = a.cli("status", check=False)
                assert done.returncode == 1 and "Broken pipe" not in done.stderr and "closed the connection" in done.stderr, done
        finally:
            listener.kill()


# --- top ---

def test_locks_hosts_and_the_filter(two, terminal):
    """Names move no cursor."""
    a, b = two
    jobs = holder(a, name="alpha"), holder(b, name="beta")
    waits = Job(b, "flock", b.path("alpha"), "true")
    evil = holder(a, name="evil\033[2J\n日本")
    top = terminal(a, "top", "--seconds=1")
    top.row("t/evil\\x1b[2J\\x0a", "held", "flock exclusive")
    top.row("t/alpha", "held", "flock exclusive, whole file", f"pid {jobs[0].pid} (flock)")
    top.row("t/alpha", "waits (1.)", f"pid {waits.pid} (flock)")
    top.row("t/beta", "held", f"pid {jobs[1].pid}")
    top.row("store unix:", "up", "hosts 2, silent 0", "leases 3, waiting 1")
    top.press("r")
    wait_until(lambda: top.first("t/alpha ", "t/beta ") == ["t/beta ", "t/alpha "], "the order is reversed")
    top.press("/bet")
    top.gone("t/alpha")
    top.row("filter: bet_")
    top.press("\033")
    top.row("t/alpha", "held")
    top.press("h")
    top.row("this host", "beat")
    top.gone("t/beta")
    assert jobs[0].end() == 0 and waits.end() == 0
    top.press("h")
    top.gone("waits (1.)")  # it looks again by itself
    assert jobs[1].end() == evil.end() == 0
    assert not top.flags() & termios.ECHO
    top.press("q")
    assert top.ended() == 0


def test_who_and_break(make_host, terminal):
    """They are the commands of that name: break asks, and takes the lock away."""
    a = make_host("a")
    job = holder(a)
    top = terminal(a, "top")
    top.row("t/f", "held")
    for keys, rows in ("\n", ["$ dflock who t/f", f"pid {job.pid}", "(any key)"]), (" ", ["q ends"]), ("b", ["[y/N]"]), ("y\n", ["(any key)"]):
        top.press(keys)
        for row in rows:
            top.row(row)
    job.process.wait(30)
    top.press(" ")
    top.row("leases 0, waiting 0")
    top.press("q")
    assert top.ended() == 0


def test_a_narrow_terminal(make_host, terminal):
    """What is too wide ends at the margin, and does not go on in the next line."""
    a = make_host("a")
    job = holder(a)
    for rows in 24, 6, 2:
        top = terminal(a, "top", rows=rows, columns=40)
        top.row("dflock top")
        if rows > 6:
            top.row("t/f", "held", "flock")
            wait_until(lambda: "filters" in top.read(), "the last line is drawn")
            top.read()
            assert [i for i, line in enumerate(top.screen.display) if line.strip()] == [0, 1, 3, 4, 23], top.screen.display
        top.press("q")
        assert top.ended() == 0
    assert job.end() == 0


def test_a_terminal_that_cannot_move_its_cursor(make_host, terminal):
    top = terminal(make_host("a"), "top", before=["env", "TERM=dumb"])
    assert top.ended() == 1 and "this is no terminal on which a screen can be drawn (TERM=dumb)" in top.text


def test_a_terminal_that_is_gone(make_host, terminal):
    """Also where nobody is told, as below nohup(1)."""
    top = terminal(make_host("a"), "top", before=["sh", "-c", 'trap "" HUP; exec "$@"', "sh"])
    top.row("q ends")
    with open(os.devnull, "r+b") as null:
        os.dup2(null.fileno(), top.master)
    top.process.wait(20)


# --- status --html ---

HOSTILE = "<_script><img src=x onerror=document.title=1>@STATE@&amp;"


def shown(folder, page):
    """The text of the document that a browser has made of it."""
    browser = shutil.which("chromium")
    if not browser:
        pytest.skip("chromium is not installed")
    path = os.path.join(folder, "page.html")
    write_text(path, page)
    done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync", "--no-first-run",
                           f"--user-data-dir={folder}/browser", "--virtual-time-budget=2000", "--dump-dom", "file://" + path],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout[done.stdout.index("<main>"):done.stdout.index("</main>")], done.stdout


def test_a_browser_shows_it(folder, two):
    """One page that a browser shows without anything else. Hostile names are text."""
    a, b = two
    hold = holder(a, name="nightly")
    waiter = Job(b, "flock", b.path("nightly"), "true")
    evil = holder(a, name=HOSTILE)
    wait_until(lambda: any(lock["waiters"] for lock in a.status()["cluster"]["locks"]), "the other host waits")
    page = a.cli("status", "--html").stdout
    assert page.count("<script") == 2 and "<img" not in page
    main, whole = shown(folder, page)
    rows = [r for r in re.findall("<tr>.*?</tr>", main) if "t/nightly" in r]
    assert len(rows) == 2 and all("flock exclusive, whole file" in row for row in rows), rows
    assert ">held<" in rows[0] and f"pid {hold.pid}, flock" in rows[0], rows
    assert ">waits (1.)<" in rows[1] and f"pid {waiter.pid} (flock)" in rows[1], rows
    assert "Locks (3)" in main and "Hosts (2)" in main and "(this host)" in main, main
    assert "<title>dflock a" in whole
    assert "&lt;_script&gt;&lt;img" in main and "<img" not in whole and "<title>1" not in whole, main
    assert hold.end() == waiter.end() == evil.end() == 0


def test_a_page_without_a_keeper(folder, host_of):
    """It is there all the same, and loads nothing."""
    page = host_of("unix:/none", foreground=False).cli("status", "--html").stdout
    assert "default-src 'none'" in page and not re.search(r"(src|href)=[\"'a-z]", page.split("<script")[0]), page
    assert "no keeper runs on this host" in shown(folder, page)[1]


def test_a_store_with_a_name_that_is_away(make_host, make_server, terminal, folder):
    """The locks in it are missing, which must not look as if they were free."""
    other = make_server()
    a = make_host("a", top='stores = { other = { server = "unix:%s"; }; };' % other.socket)
    other.stop()
    wait_until(lambda: not a.status()["stores"][0]["store"]["up"], "the keeper has seen it")
    page = a.cli("status", "--html").stdout
    top = terminal(a, "top")
    top.row("store unix:", "up", "hosts")
    top.row("store other: ", "connection")
    top.press("q")
    assert top.ended() == 0
    alarms = shown(folder, page)[1].split('<ul id="alarms">')[1].split("</ul>")[0]
    assert re.search(r'<li class="bad">store other: DOWN: .*connection', alarms), alarms
