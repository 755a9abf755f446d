"""`dflock wrap`: drop-ins for services, and crontabs, below dflock. systemctl and crontab are scripts here."""
import os
import signal
import subprocess

import pytest
from harness import text_of, write_text
from harness.host import BUILD, CLI

UNIT = """# /lib/systemd/system/nightly.service
[Unit]
Description=Nightly
[Service]
Environment=A=ExecStart=no
ExecStart=/usr/bin/old
# /etc/systemd/system/nightly.service.d/local.conf
[Service]
ExecStart=
ExecStart=-/usr/bin/nightly --all \\
    "with blanks" $MORE
ExecStart=+/usr/bin/second
[Install]
WantedBy=multi-user.target
"""
CRONTAB = """# m h dom mon dow command
SHELL=/bin/bash
PATH=/usr/bin
0 3 * * * flock -n /var/lock/n sh -c 'nightly --to "$HOME"' 2>&1
@daily mail root%Subject: x%%it's
*/5 * * * * dflock run -- done already

\t5 4 * * sun date +\\%F >> it\\'s
-~ 4 * * * quietly
"""


@pytest.fixture
def wrap(folder):
    """wrap(WORDS...) with a systemctl and a crontab that know these; what crontab got is in `installed`."""
    def script(name, text):
        path = os.path.join(folder, name)
        write_text(path, "#!/bin/sh\n" + text)
        os.chmod(path, 0o755)

    for name, text in ("unit", UNIT), ("crontab-text", CRONTAB):
        write_text(os.path.join(folder, name), text)
    script("systemctl", f'[ "$*" = "cat -- nightly.service" ] && exec cat {folder}/unit; echo "No files found for $3." >&2; exit 1\n')
    script("crontab", f'[ "$1 $2" = "-u root" ] || exit 1; case $3 in -l) exec cat {folder}/crontab-text;; -) exec cat >{folder}/installed;; esac\n')

    def run(*words, status=0, **more):
        env = {**os.environ, "PATH": folder + ":" + os.environ["PATH"]}
        done = subprocess.run([CLI, "wrap", *words], env=env, capture_output=True, text=True, timeout=60, **more)
        assert done.returncode == status, done
        return done.stderr if status else done.stdout

    run.folder = folder
    return run


def test_a_service(wrap):
    """Of several ExecStart= the last ones count; their marks stay in front."""
    assert wrap("nightly", "--require=/var/lock/n", "--net").split("\n\n")[1] == (
        "[Service]\nExecStart=\n"
        f'ExecStart=-{BUILD}/dflock run --require=/var/lock/n --net=on -- /usr/bin/nightly --all  "with blanks" $MORE\n'
        f"ExecStart=+{BUILD}/dflock run --require=/var/lock/n --net=on -- /usr/bin/second\n")
    assert "After=dflock.service\n" in wrap("nightly.service")


def test_a_name_with_a_dot(wrap):
    """As php8.2-fpm has one: systemctl takes what ends with no kind of unit for a service, and the drop-in is to be found there."""
    with open(os.path.join(wrap.folder, "systemctl"), "w") as f:
        f.write(f'#!/bin/sh\n[ "$*" = "cat -- php8.2-fpm.service" ] && exec cat {wrap.folder}/unit; echo "asked for $3" >&2; exit 1\n')
    assert "ExecStart=-" in wrap("php8.2-fpm")
    assert "ExecStart=-" in wrap("php8.2-fpm.service")


@pytest.mark.parametrize("text, starts", [
    ("ExecStart=/bin/a ; -/bin/b 'x ; y' \\; z;\n", ["/bin/a ", "/bin/b 'x ; y' \\; z;"]),
    ("ExecStart=/bin/a \\\n# no end \\\n  ; neither\n --more\n", ["/bin/a  --more"]),
    ("ExecStart=/bin/a\n# about the next one \\\nExecStart = /bin/b\n", ["/bin/a", "/bin/b"]),
    ("ExecStart=/bin/a \\\r\n  --more\r\nRestart=no\r\n", ["/bin/a  --more"]),
    ("ExecStart=/bin/a\nExecStart =\nExecStart=/bin/b x\\\\\nRestart=no\n", ["/bin/b x\\\\"]),
], ids=["several-commands", "a-comment-between", "a-comment-before", "line-ends-of-windows", "blanks"])
def test_a_service_as_systemd_reads_it(wrap, text, starts):
    """Each command of it is below dflock, with all its words, and none is left out."""
    write_text(os.path.join(wrap.folder, "unit"), "[Service]\n" + text)
    made = wrap("nightly").split("[Service]\nExecStart=\n")[1]
    assert [line.split(f"{BUILD}/dflock run -- ")[1] for line in made.splitlines()] == starts


@pytest.mark.root("needs a mount, and so root")
def test_a_service_with_a_drop_in_of_its_own(wrap):
    """systemd reads drop-ins in the order of their names. The one that `dflock wrap` writes is read after override.conf, so it counts."""
    place = "/etc/systemd/system"
    write_text(os.path.join(wrap.folder, "systemctl"), f"#!/bin/sh\nLC_ALL=C; export LC_ALL; cat {wrap.folder}/unit {place}/nightly.service.d/*.conf\n")
    text = f"""set -e; mount -t tmpfs tmpfs {place}; mkdir {place}/nightly.service.d
        printf '[Service]\\nExecStart=\\nExecStart=/bin/own\\n' >{place}/nightly.service.d/override.conf
        {CLI} wrap nightly --write; {CLI} wrap nightly 2>&1"""
    env = {**os.environ, "PATH": wrap.folder + ":" + os.environ["PATH"]}
    done = subprocess.run(["unshare", "--mount", "sh", "-c", text], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith(f"nightly.service is below dflock already: ExecStart={BUILD}/dflock run -- /bin/own\n"), done


@pytest.mark.parametrize("start, why", [("", "has no ExecStart=: is it a service?"), ("@/bin/x y", "gives the program another name (@)"),
                                        ("/usr/bin/dflock run -- x", "is below dflock already"),
                                        ("/usr/bin/dflock lock n -- x", "is below dflock already"),
                                        ("/bin/x\nExecStart=".join(65 * [""]) + "/bin/x", "has more than 64 ExecStart=: write the drop-in by hand")])
def test_a_service_that_cannot_be_wrapped(wrap, start, why):
    with open(os.path.join(wrap.folder, "unit"), "w") as f:
        f.write(f"[Service]\nExecStart={start}\n")
    assert why in wrap("nightly", status=1)


def test_a_crontab(wrap):
    run = f"{BUILD}/dflock run --require --"
    changed = [line[1:] for line in wrap("--crontab=root", "--require").splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert changed == [
        f"0 3 * * * {run} /bin/bash -c 'flock -n /var/lock/n sh -c '\\''nightly --to \"$HOME\"'\\'' 2>&1'",
        f"@daily {run} /bin/bash -c 'mail root'%Subject: x%%it's",
        f"\t5 4 * * sun {run} /bin/bash -c 'date +\\%F >> it\\'\\''s'",
        f"-~ 4 * * * {run} /bin/bash -c 'quietly'",
    ]
    assert not os.path.exists(os.path.join(wrap.folder, "installed"))


def test_a_crontab_is_written(wrap):
    """What cron makes of a line runs as before: % is taken away by cron, before the shell reads it."""
    assert wrap("--crontab=root", "--write") == "the crontab of root is changed\n"
    installed = text_of(os.path.join(wrap.folder, "installed"))
    assert [line for line in installed.splitlines() if " run -- " not in line] == CRONTAB.splitlines()[:3] + [""]
    command = installed.splitlines()[-2].split(None, 5)[5].replace("\\%", "%").replace(f"{BUILD}/dflock run -- ", "")
    subprocess.run(["/bin/sh", "-c", command.replace("/bin/bash -c", "echo")], check=True, stdout=subprocess.DEVNULL)
    write_text(os.path.join(wrap.folder, "crontab-text"), installed)
    assert wrap("--crontab=root") == "no job of root's crontab is to be changed\n"


@pytest.mark.root("runs as another user")
def test_a_crontab_of_ones_own(wrap):
    """cronie lets root alone use -u, also with one's own name."""
    write_text(os.path.join(wrap.folder, "crontab"), f'#!/bin/sh\n[ "$*" = -l ] || {{ echo "must be privileged to use -u" >&2; exit 1; }}\n'
                                                     f'exec cat {wrap.folder}/crontab-text\n')
    os.chmod(wrap.folder, 0o755)
    assert "/bin/bash -c 'quietly'" in wrap("--crontab=nobody", user="nobody")
    assert wrap("--crontab=root", user="nobody", status=1) == "must be privileged to use -u\n"


def test_a_crontab_that_is_refused(wrap):
    """Also where a parent has left SIGCHLD ignored."""
    os.mkdir(os.path.join(wrap.folder, "installed"))
    for before in None, lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN):
        assert "installed" in wrap("--crontab=root", "--write", status=1, preexec_fn=before)


def test_what_makes_no_sense(wrap):
    assert wrap("other", status=1) == "No files found for other.service.\n"
    assert wrap("../etc/passwd", status=2) == 'dflock: "../etc/passwd" is no name of a unit\n'
    for words in (), ("nightly", "--crontab=root"):
        assert "it takes a unit, or --crontab=USER" in wrap(*words, status=2)
    for file in "/a b", "/a;b", "/a&b", "/[ab]", "/a#", "~a", "/(a)":
        assert "has a character that units or crontabs read as their own" in wrap("nightly", "--require=" + file, status=2)
