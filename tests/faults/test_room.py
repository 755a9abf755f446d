"""A keeper has a bounded room for leases: unused ones go back to make room for those that a program asks for."""
import os

from harness.host import CLI

from common import leases, opened
from harness.metrics import value

# A keeper with 400 descriptors has room for so many leases.
FEW = ["prlimit", "--nofile=400"]
ROOM = 208
# Nothing goes back by itself while a test runs.
LEASE = "ttl_ms = 20000; linger_ms = 20000; probe_ms = 3000; store_wait_ms = 15000;"

MANY = """
import errno, fcntl, os, sys
folder, first, count, keep = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "keep"
files, refused = [], 0
for i in range(first, first + count):
    f = open(os.path.join(folder, "f%d" % i), "w")
    try:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        files.append(f)
    except OSError as e:
        assert e.errno == errno.ENOLCK, e
        refused += 1
    if not keep:
        files.clear()
print(len(files) if keep else count - refused, refused, flush=True)
sys.stdin.read()
"""


def many(host, first, count, keep):
    """Locks so many files, one after the other; keep: and goes on holding them. The process, how many it got, and were refused."""
    p = host.popen("/usr/bin/python3", "-c", MANY, host.files, str(first), str(count), "keep" if keep else "drop", stdin=-1)
    got, refused = map(int, p.stdout.readline().split())
    return p, got, refused


def end(p):
    _, err = p.communicate(timeout=60)
    assert p.returncode == 0, err
    return [l for l in err.splitlines() if l.startswith("dflock:")]


def test_unused_leases_give_way(make_host):
    """More files than there is room for are locked one after the other, and none is in use when the next one is asked for. Of unused leases those
    that were asked for last stay. One whose pin has not ended when room is made is older than it seems."""
    a = make_host("a", lease=LEASE, inside=FEW)
    p, got, refused = many(a, 0, 1000, keep=False)
    assert (got, refused, end(p)) == (1000, 0, [])
    kept = sorted(int(l["name"][len("t/f"):]) for l in leases(a, state="held"))
    assert ROOM / 2 < len(kept) <= ROOM
    assert kept[-ROOM // 2:] == list(range(1000 - ROOM // 2, 1000))


def test_what_is_in_use_stays(make_host):
    """The room is taken by locks that are held: the next is refused with a line that says so, and those that are held stay."""
    a = make_host("a", lease=LEASE, inside=FEW)
    holder, got, refused = many(a, 0, ROOM + 3, keep=True)
    assert (got, refused) == (ROOM, 3)
    other = opened(a, "g")
    assert other.do("flock 0 ex nb") == "ENOLCK"
    waits = opened(a, "h").say("flock 0 ex")
    assert waits.silent()
    lines = end(holder)  # its locks are gone, and the one that waits gets some of the room
    assert len(lines) == 3 and all(f"has room for {ROOM} files or ranges, and all are in use" in l for l in lines), lines
    assert waits.heard()[0] == "ok"
    assert other.do("flock 0 ex nb") == "ok"


def test_ranges_of_one_name(make_host):
    """The store has room for 1,000 ranges of a name: those that one host does not use any more make room."""
    a, b = make_host("a", lease=LEASE), make_host("b", lease=LEASE)
    other = opened(b, "f")
    assert other.do("setlk 0 ex 5000000 1") == "ok"  # b has a range, so that a gets what it asks for and no more
    agent = a.opened("f", "setlk 0 ex 4000000 1")
    for i in range(1200):
        assert agent.do(f"setlk 0 ex {10 * i} 1") == "ok", i
        assert agent.do(f"setlk 0 un {10 * i} 1") == "ok"
    assert other.do("setlk 0 ex 4000000 1") == "EAGAIN"


ALL_RANGES = """
local lock, inc = {l = {}, q = {}}, redis.call('HGET', 'dflock:{0}:store', 'inc')
for i = 1, 1000 do
    lock.l[i] = {token = string.format('%032x', i), host = 'other', file = '1:1', space = 'record', mode = 'exclusive',
        from = string.format('%019d', 10 * i), to = string.format('%019d', 10 * i + 1), fence = i, job = ''}
end
redis.call('SET', KEYS[1], cmsgpack.pack(lock))
redis.call('HSET', 'dflock:{0}:store', KEYS[1], inc)
"""


def test_ranges_that_are_all_in_use(make_host, redis):
    """A caller that finds no room waits for it, and is refused. It asks less and less often: each such question costs the server as much as
    all the ranges."""
    host = make_host("a", lease="ttl_ms = 20000; store_wait_ms = 3000;")
    redis.command("EVAL", ALL_RANGES, 1, "dflock:{0}:lock:t/f")
    assert opened(host, "f").do("setlk 0 ex 5 1 w") == "ENOLCK"
    assert value(host, "store_requests_total", operation="acquire") < 30


def as_user(host, uid, first, count, before=(), within=()):
    """many(), of another user. The files exist, and every user may use them. before: what root starts it with; within: what the user does."""
    for i in range(first, first + count):
        path = host.path("f%d" % i)
        with open(path, "w"):
            os.chmod(path, 0o666)
    p = host.popen(*before, *host.as_user(uid, *within, "/usr/bin/python3", "-c", MANY, host.files, str(first), str(count), "keep"), stdin=-1)
    got, refused = map(int, p.stdout.readline().split())
    return p, got, refused


WITHOUT = ["env", "-u", "LD_PRELOAD"]


def has_a_share(system, **how):
    """A user that takes all the locks that there are gets a quarter of the room, and others go on."""
    greedy, *got = as_user(system, 12345, 0, ROOM // 4 + 2, **how)
    assert got == [ROOM // 4, 2]
    other, *got = as_user(system, 23456, 1000, 10)
    assert got == [10, 0]
    root, *got = many(system, 2000, 10, keep=True)
    assert got == [10, 0]
    lines = end(greedy)
    assert len(lines) == 2 and all("which is a quarter of what the keeper has room for" in l for l in lines), lines
    assert end(other) == end(root) == []


def test_a_user_has_a_share(make_system):
    has_a_share(make_system(limits=FEW, lease=LEASE))


def test_a_user_has_a_share_below_roots_net(make_system):
    """Root's net asks with the rights of the user whose program it is."""
    has_a_share(make_system(limits=FEW, lease=LEASE), before=[*WITHOUT, CLI, "run", "--net=on", "--"], within=WITHOUT)


def test_users_together_leave_root_some(make_system):
    """Four users take all that they can; what is left is root's."""
    system = make_system(limits=FEW, lease=LEASE.replace("probe_ms = 3000", "probe_ms = 200"))
    crowd = [as_user(system, 12345 + i, 1000 * i, ROOM // 4) for i in range(4)]
    assert sum(got for _, got, _ in crowd) == ROOM - ROOM // 16
    root, *got = many(system, 9000, 10, keep=True)
    assert got == [10, 0]
    lines = [line for p, _, _ in crowd for line in end(p)]
    assert lines and all(f"has room for {ROOM} files or ranges" in l for l in lines), lines
    assert end(root) == []
