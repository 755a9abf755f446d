"""`dflock status --html`: one page that a browser shows without anything else, and hostile names in it."""
import json
import os
import re
import shutil
import subprocess

import pytest
from harness import Job, wait_until, write_text
from harness.host import CLI

HOSTILE = "</script><img src=x onerror=document.title=1>@STATE@&amp;"


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
    a, b = two
    holder = Job(a, "flock", a.path("nightly"), "sh", "-c", "echo held; read line; true").held()
    waiter = Job(b, "flock", b.path("nightly"), "true")
    wait_until(lambda: any(lock["waiters"] for lock in json.loads(a.cli("status", "--json").stdout)["cluster"]["locks"]), "the other host waits")
    main, whole = shown(folder, a.cli("status", "--html").stdout)
    rows = [r for r in re.findall("<tr>.*?</tr>", main) if "t/nightly" in r]
    assert len(rows) == 2 and all("flock exclusive, whole file" in row for row in rows), rows
    assert ">held<" in rows[0] and f"pid {holder.pid}, flock" in rows[0], rows
    assert ">waits (1.)<" in rows[1] and f"pid {waiter.pid} (flock)" in rows[1], rows
    assert "Locks (2)" in main and "Hosts (2)" in main and "(this host)" in main, main
    assert "<title>dflock a" in whole
    assert holder.end() == 0 and waiter.end() == 0


def test_names_are_text(folder, make_host):
    a = make_host("a")
    name = HOSTILE.replace("/", "_")
    holder = Job(a, "flock", a.path(name), "sh", "-c", "echo held; read line; true").held()
    page = a.cli("status", "--html").stdout
    assert page.count("<script") == 2 and "<img" not in page
    main, whole = shown(folder, page)
    assert "&lt;_script&gt;&lt;img" in main and "<img" not in whole and "<title>1" not in whole, main
    assert holder.end() == 0


def test_without_a_keeper(folder, host_of):
    """The page is there all the same, and loads nothing."""
    page = host_of("unix:/none", foreground=False).cli("status", "--html").stdout
    assert "default-src 'none'" in page and not re.search(r"(src|href)=[\"'a-z]", page.split("<script")[0]), page
    assert "no keeper runs on this host" in shown(folder, page)[1]


def test_one_of_them(host_of):
    a = host_of("unix:/none", foreground=False)
    done = subprocess.run([CLI, "status", "--html", "--json"], env=a.env(), capture_output=True, text=True)
    assert done.returncode == 2 and "one of --json, --html, --check and --watch" in done.stderr
