"""`dflock doctor` about crontabs and units that preload a libdflock.so which is not there."""
import os
import subprocess

import pytest
from harness.host import BUILD, CLI, ROOT, SHIM

from lines import Doctor
from test_doctor_program import host, needs_root  # noqa: F401 (fixture)

pytestmark = needs_root


def doctor(host, *prepare, words=()):
    """dflock doctor in a mount namespace where these folders are empty, and `prepare`, lines of shell, has put something."""
    text = "set -e\n" + "".join(f"mkdir -p {f}; mount -t tmpfs tmpfs {f}\n" for f in
                                ("/etc/cron.d", "/var/spool/cron", "/etc/systemd/system", "/etc/default"))
    text += "mkdir -p /var/spool/cron/crontabs\n" + "\n".join(prepare) + '\nexec "$@"\n'
    env = {k: v for k, v in host.env().items() if k != "LD_PRELOAD"}
    done = subprocess.run(["unshare", "--mount", "sh", "-c", text, "-", CLI, "doctor", *words], env=env, capture_output=True,
                          text=True, timeout=120)
    return Doctor(host, done=done)


@pytest.fixture(scope="module", autouse=True)
def folders():
    """Places to mount upon; those that were not there are removed again."""
    made = [f for f in ("/etc/cron.d", "/var/spool/cron", "/etc/systemd/system", "/etc/default") if not os.path.exists(f)]
    for folder in made:
        os.makedirs(folder)
    yield
    for folder in made:
        os.rmdir(folder)


GONE = "/opt/gone/lib/libdflock.so"


def missing(found):
    return [text.split(": ")[0] for level, text in found.found if level == "problem" and "which cannot be loaded" in text]


@pytest.mark.parametrize("path, line", [
    ("/etc/cron.d/job", f"LD_PRELOAD={GONE}"),
    ("/etc/cron.d/job", f"5 4 * * * root LD_PRELOAD='{GONE}' /usr/bin/job"),
    ("/var/spool/cron/crontabs/root", f'LD_PRELOAD="{GONE}"'),
    ("/etc/default/job", f"export LD_PRELOAD=/other.so:{GONE}"),
    ("/etc/systemd/system/job.service", f"Environment=LD_PRELOAD={GONE}"),
    ("/etc/systemd/system/job.service.d/lock.conf", f'Environment="A=b" "LD_PRELOAD={SHIM} {GONE}" C=d'),
    ("/etc/cron.d/job", "LD_PRELOAD=libdflock-of-nowhere.so"),
])
def test_what_is_not_there(host, path, line):
    found = doctor(host, f"mkdir -p {os.path.dirname(path)}", f"cat >{path} <<'END'\n# {line}\n{line}\nEND")
    assert missing(found) == [f"{path}, line 2"], found.done
    text = found.has("problem", "which cannot be loaded")
    assert "what is started there runs unprotected; install the library there, or take this out" in text


@pytest.mark.parametrize("line", [f"LD_PRELOAD={SHIM}", "LD_PRELOAD=/opt/gone/lib/another.so", f"# LD_PRELOAD={GONE}",
                                  f"; LD_PRELOAD={GONE}", f"ls {GONE}"])
def test_what_is_in_order(host, line):
    found = doctor(host, f"echo '{line}' >/etc/cron.d/job")
    assert missing(found) == [], found.done


def test_what_another_user_names_is_not_given_to_the_linker(host):
    """Not even by root: it would map a file of that user's."""
    path = "/var/spool/cron/crontabs/mallory"
    found = doctor(host, f"echo LD_PRELOAD={GONE} >{path}; chown 12345 {path}")
    assert missing(found) == [], found.done


def test_what_is_no_file_does_not_hold_it_up(host):
    found = doctor(host, "mkfifo /etc/cron.d/pipe", "ln -s /dev/zero /etc/cron.d/zero",
                   "yes 'LD_PRELOAD=/x/libdflock.so' | head -c 3000000 >/etc/cron.d/large")
    assert len(missing(found)) == 20 and found.has("warning", "there may be more places")


def test_the_list_of_the_whole_machine(host):
    """In a copy of /etc. The dynamic linker says so, too, in front of each program."""
    text = 'set -e; cp -a /etc "$1/etc"; mount --bind "$1/etc" /etc; echo "# libdflock" >/etc/ld.so.preload; ' \
           f'echo "{GONE}" >>/etc/ld.so.preload; exec "{CLI}" doctor'
    env = {k: v for k, v in host.env().items() if k != "LD_PRELOAD"}
    done = subprocess.run(["unshare", "--mount", "sh", "-c", text, "-", host.files], env=env, capture_output=True, text=True,
                          timeout=120)
    subprocess.run(["rm", "-rf", os.path.join(host.files, "etc")], check=True)
    assert f"problem: /etc/ld.so.preload, line 2: LD_PRELOAD names {GONE}, which cannot be loaded" in done.stdout, done


def test_the_bare_name_works_after_make_install(host, programs):
    """In a namespace with a /usr/local and a cache of the dynamic linker's of its own."""
    text = 'set -e; cp -a /etc "$1/etc"; mount --bind "$1/etc" /etc; mount -t tmpfs tmpfs /usr/local; mkdir -p /var/cache/ldconfig; ' \
           'mount -t tmpfs tmpfs /var/cache/ldconfig; cd "$2"; ' \
           'LD_PRELOAD=libdflock.so flock -s /dev/null true 2>&1 | sed "s/^/before: /"; ' \
           'make -s install BUILD="$3" PREFIX=/usr/local >/dev/null; ' \
           'LD_PRELOAD=libdflock.so LD_DEBUG=files flock -s /dev/null true 2>&1 | grep "calling init.*libdflock"'
    done = subprocess.run(["unshare", "--mount", "sh", "-c", text, "-", programs, ROOT, BUILD],
                          env={"PATH": os.environ["PATH"], "HOME": programs}, capture_output=True, text=True, timeout=600)
    assert "before: ERROR: ld.so: object 'libdflock.so'" in done.stdout, done
    assert "calling init: /usr/local/lib/libdflock.so" in done.stdout, done
