"""`dflock doctor` about crontabs and units that preload a libdflock.so which is not there."""
import os
import subprocess

import pytest
from harness.host import BUILD, CLI, ROOT, SHIM

from lines import Doctor
from test_doctor_program import needs_root

pytestmark = needs_root
FOLDERS = "/etc/cron.d", "/var/spool/cron", "/etc/systemd/system", "/etc/default"
GONE = "/opt/gone/lib/libdflock.so"


def doctor(host, *prepare):
    """dflock doctor in a mount namespace where these folders are empty, and `prepare`, lines of shell, has put something."""
    text = "set -e\n" + "".join(f"mkdir -p {f}; mount -t tmpfs tmpfs {f}\n" for f in FOLDERS)
    text += "mkdir -p /var/spool/cron/crontabs\n" + "\n".join(prepare) + f'\nexec "{CLI}" doctor\n'
    done = subprocess.run(["unshare", "--mount", "sh", "-c", text], env=host.plain_env(), capture_output=True, text=True, timeout=120)
    return Doctor(host, done=done)


@pytest.fixture(scope="module", autouse=True)
def folders():
    """Places to mount upon; those that were not there are removed again."""
    made = [f for f in FOLDERS if not os.path.exists(f)]
    for folder in made:
        os.makedirs(folder)
    yield
    for folder in made:
        os.rmdir(folder)


def missing(found):
    return [text.split(": ")[0] for level, text in found.found if level == "problem" and "which cannot be loaded" in text]


WRONG = {
    "/etc/cron.d/job": [f"LD_PRELOAD={GONE}", f"5 4 * * * root LD_PRELOAD='{GONE}' /usr/bin/job", "LD_PRELOAD=libdflock-of-nowhere.so"],
    "/var/spool/cron/crontabs/root": [f'LD_PRELOAD="{GONE}"'],
    "/etc/default/job": [f"export LD_PRELOAD=/other.so:{GONE}", f"LD_PRELOAD=${{LD_PRELOAD:+$LD_PRELOAD:}}{GONE}", "LD_PRELOAD=/opt/gone/$LIB/libdflock.so"],
    "/etc/systemd/system/job.service": [f"Environment=LD_PRELOAD={GONE}"],
    "/etc/systemd/system/job.service.d/lock.conf": [f'Environment="A=b" "LD_PRELOAD={SHIM} {GONE}" C=d'],
}
RIGHT = [f"LD_PRELOAD={SHIM}", "LD_PRELOAD=/opt/gone/lib/another.so", f"# LD_PRELOAD={GONE}", f"; LD_PRELOAD={GONE}", f"ls {GONE}",
         f"export LD_PRELOAD=${{LD_PRELOAD:+$LD_PRELOAD:}}{SHIM}", "LD_PRELOAD=$LIBDIR/libdflock.so", "LD_PRELOAD=/opt/${VERSION}/libdflock.so"]


def test_what_is_not_there(unable):
    """What another user names is not given to the linker, not even by root: it would map a file of that user's."""
    prepare = [f"mkdir -p {os.path.dirname(path)}\ncat >{path} <<'END'\n" + "\n".join(["# " + lines[0], *lines, "END"]) for path, lines in WRONG.items()]
    prepare += ["cat >/etc/cron.d/right <<'END'\n" + "\n".join(RIGHT) + "\nEND",
                f"echo LD_PRELOAD={GONE} >/var/spool/cron/crontabs/mallory; chown 12345 /var/spool/cron/crontabs/mallory"]
    found = doctor(unable, *prepare)
    assert sorted(missing(found)) == sorted(f"{path}, line {n}" for path, lines in WRONG.items() for n in range(2, 2 + len(lines))), found.done
    assert found.done.stdout.count("what is started there runs unprotected; install the library there, or take this out") == 9


def test_what_is_no_file_does_not_hold_it_up(unable):
    found = doctor(unable, "mkfifo /etc/cron.d/pipe", "ln -s /dev/zero /etc/cron.d/zero",
                   "yes 'LD_PRELOAD=/x/libdflock.so' | head -c 3000000 >/etc/cron.d/large")
    assert len(missing(found)) == 20 and found.has("warning", "there may be more places")


COPY_OF_ETC = 'set -e; cp -a /etc "$1/etc"; mount --bind "$1/etc" /etc; '


def test_the_list_of_the_whole_machine(unable, programs):
    """In a copy of /etc. The dynamic linker says so, too, in front of each program."""
    text = COPY_OF_ETC + f'echo "# libdflock" >/etc/ld.so.preload; echo "{GONE}" >>/etc/ld.so.preload; exec "{CLI}" doctor'
    done = subprocess.run(["unshare", "--mount", "sh", "-c", text, "-", programs], env=unable.plain_env(), capture_output=True,
                          text=True, timeout=120)
    assert f"problem: /etc/ld.so.preload, line 2: LD_PRELOAD names {GONE}, which cannot be loaded" in done.stdout, done


def test_the_bare_name_works_after_make_install(programs):
    """In a namespace with a /usr/local and a cache of the dynamic linker's of its own."""
    text = COPY_OF_ETC + 'mount -t tmpfs tmpfs /usr/local; mkdir -p /var/cache/ldconfig; ' \
        'mount -t tmpfs tmpfs /var/cache/ldconfig; cd "$2"; ' \
        'LD_PRELOAD=libdflock.so flock -s /dev/null true 2>&1 | sed "s/^/before: /"; ' \
        'make -s install BUILD="$3" PREFIX=/usr/local >/dev/null; ' \
        'LD_PRELOAD=libdflock.so LD_DEBUG=files flock -s /dev/null true 2>&1 | grep "calling init.*libdflock"'
    done = subprocess.run(["unshare", "--mount", "sh", "-c", text, "-", programs, ROOT, BUILD],
                          env={"PATH": os.environ["PATH"], "HOME": programs}, capture_output=True, text=True, timeout=600)
    assert "before: ERROR: ld.so: object 'libdflock.so'" in done.stdout, done
    assert "calling init: /usr/local/lib/libdflock.so" in done.stdout, done
