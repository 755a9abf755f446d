"""`dflock check`: a mistake with file and line, and what a file is protected as. Every mistake: tests/unit/test_config_refusals.c."""
import json
import os
import re

import pytest
from harness import text_of
from harness.host import ROOT

from lines import refusal, unconfigured, written

VALID = 'store = { server = "127.0.0.1:6379"; };\nlease = { ttl_ms = 30000; };\nprotect = (\n  { path = "/srv/a.lock"; }\n);\n'
PLACES = "write ~/.config/dflock.conf or /etc/dflock.conf (see dflock.conf(5)), or set DFLOCK_CONFIG"


@pytest.fixture
def host(host_of):
    return host_of("unix:/none", foreground=False)


def check(host, *words):
    return host.cli("check", *words, check=False)


def test_each_rule_of_the_example_alone(host):
    """No rule has a comma that libconfig 1.5 refuses where it is the last one; if one is added, the line is that of the comma."""
    example = text_of(os.path.join(ROOT, "config/dflock.conf"))
    plain = re.sub(r"(?m)^// (?=stores = |\t|};)", "", example).splitlines(keepends=True)  # one rule names a store
    rules = [i for i, line in enumerate(example.splitlines()) if line.startswith("\t// {")]
    assert rules
    for at in rules:
        for end, status in ("\n", {0}), (",\n", {0, 1}):  # libconfig 1.7 allows it
            lines = [*plain[:at], plain[at].replace("// {", "{").rstrip("\n") + end, *plain[at + 1:]]
            written(host, "".join(lines))
            done = check(host)
            assert done.returncode in status, done
            assert done.returncode == 0 or f"{host.config}:{at + 1}: syntax error; expected no comma behind the last entry of a list" in done.stderr


@pytest.mark.parametrize("change, said", [
    (("ttl_ms", "ttl"), ":2: unknown setting lease.ttl; did you mean ttl_ms?"),
    (("/srv/a.lock", "/"), ':4: path is "/": the root directory is no file; expected tree'),
    (('path = "/srv/a.lock"', 'tree = "/etc/passwd"'), ":4: tree /etc/passwd is not a directory"),
    (('a.lock";', 'a.lock"; name = "%s";' % (2000 * "n")), ":4: the lock name is 2000 bytes long; expected at"),
], ids=["misspelt", "root", "tree of a file", "name too long"])
def test_mistakes(host, change, said):
    assert change[0] in VALID
    written(host, VALID.replace(*change, 1))
    for words in (), ("--json", ):
        assert refusal(check(host, *words)).startswith(host.config + said)


@pytest.mark.parametrize("command, said", [("check", "so nothing is protected"), ("init", "that names a store")])
def test_no_configuration_at_all(host, folder, command, said):
    assert not os.path.exists("/etc/dflock.conf"), "this test needs a machine without a configuration"
    assert re.fullmatch(rf"there is no configuration,? {said}; {re.escape(PLACES)}", refusal(unconfigured(host, folder, command)))


def test_what_is_protected(host, folder):
    """Names are shown as they are, but for characters that would move the cursor."""
    link, real = os.path.join(folder, "link"), os.path.join(folder, "real")
    os.mkdir(real)
    os.symlink(real, link)
    os.mkdir(os.path.join(folder, "tree"))
    written(host, f'''protect = (
        {{ path = "{link}/by-link"; }},
        {{ path = "{folder}/named"; name = "report"; }},
        {{ path = "{folder}/jobs/*.lock"; name = "jobs"; }},
        {{ tree = "{folder}/tree"; name = "share"; }}
    );''')
    files = {"real/by-link": f"{link}/by-link", "named": "report", "jobs/a.lock": "jobs/a.lock", "jobs/.hidden.lock": None,
             "jobs/deep/a.lock": None, "tree/deep/a": "share/deep/a", "tree": None, "a\x1b[2J\n": None}
    done = check(host, *(os.path.join(folder, f) for f in files))
    assert done.returncode == 0 and done.stderr == ""
    lines = [f"configuration OK: {host.config}, 4 rules"]
    lines += [f"{folder}/{f}: " + (f"protected as {name}" if name else "not protected") for f, name in files.items()]
    assert done.stdout.splitlines() == [line.replace("\x1b", r"\x1b").replace("\n", r"\x0a") for line in lines]


@pytest.mark.parametrize("rule", ["link", "real"])
def test_a_link_and_what_it_leads_to_are_one(host, folder, rule):
    """As /var/lock and /run/lock: whichever of them the rule names, both are protected, and as one. A second link of a file is not."""
    os.mkdir(os.path.join(folder, "real"))
    os.symlink("real", os.path.join(folder, "link"))
    written(host, f'protect = ( {{ path = "{folder}/{rule}/f"; }} );')
    done = check(host, "--require", f"{folder}/link/f", f"{folder}/real/f", "--config", host.config)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == 2 * [f"{folder}/real/f: protected as {folder}/{rule}/f"]
    assert check(host, "--require", f"{folder}/link/f", f"{folder}/link/g").returncode == 1
    open(f"{folder}/real/f", "w").close()
    os.link(f"{folder}/real/f", f"{folder}/g")
    assert check(host, f"{folder}/real/f", f"{folder}/g").stdout.splitlines()[1:] == [
        f"{folder}/real/f: protected as {folder}/{rule}/f; it has 2 links, and a lock by one that no rule names is not protected",
        f"{folder}/g: not protected"]


def test_several_stores(host, folder):
    """Which one a file has, and whether the files of each can be read."""
    written(host, f'store = {{ }};\nstores = {{ hot = {{ server = "h"; }}; }};\n'
                  f'protect = ( {{ path = "{folder}/a"; store = "hot"; at_least_ms = 5000; }}, {{ path = "{folder}/b"; }} );')
    assert check(host, folder + "/a", folder + "/b").stdout.splitlines()[1:] == [
        f"{folder}/a: protected as {folder}/a, in the store hot, one lock in 5 s (at_least_ms)", f"{folder}/b: protected as {folder}/b"]
    files = json.loads(check(host, "--json", folder + "/a", folder + "/b").stdout)["files"]
    assert [f.get("store") for f in files] == ["hot", None]
    written(host, f'store = {{ server = "rediss://a"; tls_ca = "{folder}/1"; }};\n'
                  f'stores = {{ hot = {{ server = "rediss://b"; tls_ca = "{folder}/2"; }}; plain = {{ server = "c"; }}; }};')
    done = check(host)
    assert done.returncode == 1 and [line.split(": ")[2] for line in done.stderr.splitlines()] == [
        f"{store}.tls_ca {folder}/{n} cannot be read" for store, n in (("store", 1), ("stores.hot", 2))], done


def test_a_file_that_cannot_be_told(host, folder):
    """The other files are reported all the same."""
    written(host, f'protect = ( {{ tree = "{folder}"; name = "{1000 * "n"}"; }}, {{ path = "/srv/a.lock"; }} );')
    done = check(host, "", "/srv/a.lock", 5000 * "x")
    assert done.returncode == 1 and done.stdout.splitlines()[1:] == ["/srv/a.lock: protected as /srv/a.lock"]
    assert done.stderr.splitlines() == ['dflock: "": No such file or directory', f"dflock: {5000 * 'x'}: File name too long"]
    done = check(host, os.path.join(folder, 100 * "x"))
    assert done.returncode == 0 and "its lock name is too long; give its rule a shorter name" in done.stdout


def test_for_programs(host, folder):
    written(host, VALID.replace("/srv/a.lock", folder + "/f"))
    done = check(host, "--json", folder + "/f", folder + "/\udcff")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["schema"], answer["ok"], answer["config"]) == (0, 1, True, host.config)
    assert answer["files"] == [{"path": folder + "/f", "protected": True, "name": folder + "/f"}, {"path": folder + "/\\xff", "protected": False}]
    done = check(host, "--json", "--require", folder + "/g")
    assert done.returncode == 1 and json.loads(done.stdout)["ok"] is False
    assert check(host, folder + "/g").returncode == 0 and check(host, "--require").returncode == 2
