"""`dflock check`: every mistake with file, line and what was expected; what a file is protected as."""
import json
import os
import re

import pytest
from harness import text_of, write_text

from lines import refusal, unconfigured, written

VALID = 'store = { server = "127.0.0.1:6379"; };\nlease = { ttl_ms = 30000; };\nprotect = (\n  { path = "/srv/a.lock"; }\n);\n'

# Name, what VALID is changed to, the line of the mistake, what is said about it. None: the mistake has no line.
MISTAKES = [
    ("unknown setting", ("store =", "colour = 1;\nstore ="), 1, "unknown setting colour; expected one of host, log_level, allow_break, on_event, show_jobs, store, stores, lease"),
    ("misspelt setting", ("lease =", "leese ="), 2, "unknown setting leese; did you mean lease?"),
    ("misspelt in a group", ("ttl_ms", "tll_ms"), 2, r"unknown setting lease\.tll_ms; did you mean ttl_ms\?"),
    ("unit left out", ("ttl_ms", "ttl"), 2, r"unknown setting lease\.ttl; did you mean ttl_ms\?"),
    ("misspelt in a rule", ("{ path", "{ pat"), 4, r"unknown setting pat; did you mean path\?"),
    ("syntax", ("store =", "store"), 1, "syntax error; expected name = value;"),
    ("bracket left open", (");\n", "\n}"), 6, "syntax error; expected"),
    ("string left open", ('6379";', "6379;"), None, "this string does not end; expected \""),
    ("comment left open", ("lease", "/* lease"), 2, r"this comment does not end; expected \*/"),
    ("twice", ("lease", "lease = {};\nlease"), 3, "duplicate setting name; expected each setting once"),
    ("text for a number", ("30000", '"30 s"'), 2, r"lease\.ttl_ms is a string; expected a whole number"),
    ("number for a text", ('"127.0.0.1:6379"', "6379"), 1, r"store\.server is a number; expected a string"),
    ("fraction", ("30000", "30.5"), 2, r"lease\.ttl_ms is a number with a fraction; expected a whole number"),
    ("array for a list", ('(\n  { path = "/srv/a.lock"; }\n)', '[ "/srv/a.lock" ]'), 3,
     r"protect is an array \[ \]; expected a list"),
    ("too small", ("30000", "99"), 2, r"lease\.ttl_ms is 99; expected 100 to 3600000"),
    ("more than 32 bits", ("30000", "3000000000"), 2, "3000000000 needs more than 32 bits; expected an L behind the number"),
    ("margin too large", ("ttl_ms = 30000;", "ttl_ms = 30000;\nfreeze_margin_ms = 15000;"), 3,
     r"lease\.freeze_margin_ms is 15000; expected less than 13500 \(9/20 of ttl_ms\)"),
    ("on_lost", ("ttl_ms = 30000;", 'on_lost = "stop";'), 2,
     r'lease\.on_lost is "stop"; expected "freeze", "kill" or "warn"'),
    ("empty text", ('"127.0.0.1:6379"', '""'), 1, r"store\.server is empty; expected text, or leave the setting out"),
    ("port", ("6379", "99999"), 1, r'store\.server is "127\.0\.0\.1:99999": the port is not .*; expected host:port'),
    ("URL", ("127.0.0.1", "http://127.0.0.1"), 1, "it is no URL that begins with redis:// or rediss://; expected host:port"),
    ("socket without unix:", ("127.0.0.1:6379", "/run/redis.sock"), 1, "a socket's path needs unix: before it"),
    ("IPv6 without brackets", ("127.0.0.1:6379", "::1:6379"), 1, "expected host:port, .IPv6 address.:port, rediss://... or unix:/path"),
    ("user without password", ('";', '"; user = "x";'), 1, r"store\.user is there without store\.password_file"),
    ("password file missing", ('";', '"; password_file = "/none";'), 1,
     r"store\.password_file /none cannot be read: No such file or directory"),
    ("host name", ("store =", 'host = "a b";\nstore ='), 1, 'host is "a b"; expected 1 to 64 letters'),
    ("neither path nor tree", ('path = "/srv/a.lock"', 'name = "a"'), 4, "this rule has neither path nor tree; expected one"),
    ("both path and tree", ("{ path", '{ tree = "/srv"; path'), 4, "this rule has both path and tree; expected one"),
    ("relative", ("/srv/a.lock", "srv/a.lock"), 4, 'path is "srv/a.lock": expected an absolute path without . and ..'),
    ("dots", ("/srv/a.lock", "/srv/../a.lock"), 4, "expected an absolute path without . and .. in it"),
    ("the root", ("/srv/a.lock", "/"), 4, 'path is "/": the root directory is no file; expected tree'),
    ("bracket in a pattern", ("a.lock", "[a.lock"), 4, r"a \[ has no \] before the next /"),
    ("tree of a file", ('path = "/srv/a.lock"', 'tree = "/etc/passwd"'), 4, "tree /etc/passwd is not a directory"),
    ("name with a slash", ('a.lock";', 'a.lock"; name = "a/";'), 4, 'name is "a/"; expected no / at its end'),
    ("name too long", ('a.lock";', 'a.lock"; name = "%s";' % (2000 * "n")), 4, r"the lock name is 2000 bytes long; expected at"),
    ("twice the same file", ('a.lock"; }', 'a.lock"; },\n{ path = "/srv/a.lock"; name = "b"; }'), 5,
     r"/srv/a\.lock is in the rule of line 4 already; expected it once"),
    ("a rule that is no group", ('{ path = "/srv/a.lock"; }', '"/srv/a.lock"'), None, "expected groups such as { path"),
    ("control character", ("/srv/a.lock", "/srv/a\\x07.lock"), 4, r"path contains a control character \(byte 7 is 0x07\)"),
]


EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../config/dflock.conf")


def example_rules():
    with open(EXAMPLE) as f:
        return [i for i, line in enumerate(f.read().splitlines()) if line.startswith("\t// {")]


@pytest.mark.parametrize("at", example_rules())
def test_each_rule_of_the_example_alone(host, at):
    """No rule has a comma that libconfig 1.5 refuses where it is the last one; if one is added, the line is that of the comma."""
    lines = re.sub(r"(?m)^// (?=stores = |\t|};)", "", text_of(EXAMPLE)).splitlines(keepends=True)  # one rule names a store
    lines[at] = lines[at].replace("// {", "{")
    for end, status in ("\n", {0}), (",\n", {0, 1}):  # libconfig 1.7 allows it
        lines[at] = lines[at].rstrip("\n") + end
        written(host, "".join(lines))
        done = check(host)
        assert done.returncode in status, done
        assert done.returncode == 0 or f"{host.config}:{at + 1}: syntax error; expected no comma behind the last entry of a list" in done.stderr, done


@pytest.fixture
def host(host_of, folder):
    return host_of("unix:/none", foreground=False)


def check(host, *words):
    return host.cli("check", *words, check=False)


@pytest.mark.parametrize("change, line, what", [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_mistakes(host, change, line, what):
    assert change[0] in VALID
    text = VALID.replace(*change, 1)
    written(host, text)
    said = refusal(check(host))
    match = re.match(rf"{host.config}:(\d+): ", said)
    assert match and 1 <= int(match[1]) <= text.count("\n") + 1
    assert line in (None, int(match[1])), said
    assert re.search(what, said), said


def test_files_that_are_no_configuration(host, folder):
    os.unlink(host.config)
    assert refusal(check(host)) == f"{host.config}: cannot be read: No such file or directory"
    os.mkdir(host.config)
    assert refusal(check(host)) == f"{host.config}: not a regular file; expected the configuration"
    os.rmdir(host.config)
    written(host, "// " + 2_000_000 * "x")
    assert "bytes; expected a smaller file" in refusal(check(host))


def test_a_password_that_everybody_can_read(host, folder):
    password = os.path.join(folder, "password")
    write_text(password, "secret\n")
    os.chmod(password, 0o644)
    written(host, VALID.replace('";', f'"; password_file = "{password}";', 1))
    said = refusal(check(host))
    assert said == f"{host.config}:1: store.password_file {password} can be read or written by everybody; run chmod o-rw on it"
    os.chmod(password, 0o640)
    assert check(host).returncode == 0


def test_no_configuration_at_all(host, folder):
    assert not os.path.exists("/etc/dflock.conf"), "this test needs a machine without a configuration"
    done = unconfigured(host, folder, "check")
    assert refusal(done) == ("there is no configuration, so nothing is protected; write ~/.config/dflock.conf or "
                             "/etc/dflock.conf (see dflock.conf(5)), or set DFLOCK_CONFIG")


def test_what_is_protected(host, folder):
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
             "jobs/deep/a.lock": None, "tree/deep/a": "share/deep/a", "tree": None, "other": None}
    done = check(host, *(os.path.join(folder, f) for f in files))
    assert done.returncode == 0 and done.stderr == ""
    lines = [f"configuration OK: {host.config}, 4 rules"]
    lines += [f"{folder}/{f}: " + (f"protected as {name}" if name else "not protected") for f, name in files.items()]
    assert done.stdout.splitlines() == lines
    # By a link, by a relative path, and with the option.
    done = check(host, link + "/by-link", "--config", host.config)
    assert done.stdout.splitlines()[1] == f"{real}/by-link: protected as {link}/by-link"


def test_which_store(host, folder):
    written(host, f'store = {{ }};\nstores = {{ hot = {{ server = "h"; }}; }};\n'
                  f'protect = ( {{ path = "{folder}/a"; store = "hot"; at_least_ms = 5000; }}, {{ path = "{folder}/b"; }} );')
    done = check(host, folder + "/a", folder + "/b")
    assert done.stdout.splitlines()[1:] == [
        f"{folder}/a: protected as {folder}/a, in the store hot, one lock in 5 s (at_least_ms)", f"{folder}/b: protected as {folder}/b"]
    files = json.loads(check(host, "--json", folder + "/a", folder + "/b").stdout)["files"]
    assert [f.get("store") for f in files] == ["hot", None]


def test_each_store_is_looked_at(host, folder):
    written(host, f'store = {{ server = "rediss://a"; tls_ca = "{folder}/1"; }};\n'
                  f'stores = {{ hot = {{ server = "rediss://b"; tls_ca = "{folder}/2"; }}; plain = {{ server = "c"; }}; }};')
    done = check(host)
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first.startswith(f"dflock: {host.config}: store.tls_ca {folder}/1") and \
        second.startswith(f"dflock: {host.config}: stores.hot.tls_ca {folder}/2"), done


def test_a_name_that_becomes_too_long(host, folder):
    written(host, f'protect = ( {{ tree = "{folder}"; name = "{1000 * "n"}"; }} );')
    done = check(host, os.path.join(folder, 100 * "x"))
    assert done.returncode == 0
    assert "its lock name is too long; give its rule a shorter name" in done.stdout


def test_a_file_that_cannot_be_told(host):
    """The other files are reported all the same."""
    written(host, VALID)
    done = check(host, "", "/srv/a.lock", 5000 * "x")
    assert done.returncode == 1
    assert done.stdout.splitlines()[1:] == ["/srv/a.lock: protected as /srv/a.lock"]
    assert done.stderr.splitlines() == ['dflock: "": No such file or directory', f"dflock: {5000 * 'x'}: File name too long"]


def test_a_file_with_several_links(host, folder):
    written(host, VALID.replace("/srv/a.lock", folder + "/f"))
    open(folder + "/f", "w").close()
    os.link(folder + "/f", folder + "/g")
    assert check(host, folder + "/f", folder + "/g").stdout.splitlines()[1:] == [
        f"{folder}/f: protected as {folder}/f; it has 2 links, and a lock by one that no rule names is not protected",
        f"{folder}/g: not protected"]


def test_names_are_shown_as_they_are(host, folder):
    """Characters that would move the cursor are escaped."""
    written(host, VALID)
    done = check(host, folder + "/a\x1b[2J\n")
    assert done.stdout.splitlines()[1] == folder + r"/a\x1b[2J\x0a: not protected"


@pytest.mark.parametrize("rule", ["link", "real"])
def test_a_link_and_what_it_leads_to_are_one(host, folder, rule):
    """As /var/lock and /run/lock: whichever of them the rule names, both are protected, and as one."""
    os.mkdir(os.path.join(folder, "real"))
    os.symlink("real", os.path.join(folder, "link"))
    written(host, f'protect = ( {{ path = "{folder}/{rule}/f"; }} );')
    done = check(host, "--require", f"{folder}/link/f", f"{folder}/real/f")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == 2 * [f"{folder}/real/f: protected as {folder}/{rule}/f"]
    assert check(host, "--require", f"{folder}/link/f", f"{folder}/link/g").returncode == 1


def test_for_programs(host, folder):
    written(host, VALID.replace("/srv/a.lock", folder + "/f"))
    path = folder + "/\udcff".encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    done = check(host, "--json", folder + "/f", path)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["schema"], answer["ok"], answer["config"]) == (0, 1, True, host.config)
    assert answer["files"][0] == {"path": folder + "/f", "protected": True, "name": folder + "/f"}
    assert answer["files"][1] == {"path": folder + "/\\xff", "protected": False}
    done = check(host, "--json", "--require", folder + "/g")
    assert done.returncode == 1 and json.loads(done.stdout)["ok"] is False
    written(host, "no configuration")
    assert refusal(check(host, "--json"))
