"""
What the steps of a sequence mean: which process has which descriptor and waits for what, and whether a step may be played at all.

A step is a line: "p1 set 0 ex 3 5 w", which tests/agents/player.c makes a call of; or one of the driver's own:
"p1 fork p4" (p4 is the child), "p1 kill", "p1 interrupt" (a signal ends its wait), "- size f 20" (the file's size, on all hosts),
"o get f ex 3 5" (an observer on each host asks F_GETLK).

A sequence must have one outcome, whatever the timing. So no step may free two calls at once that want what only one of
them can get, and no process changes what waits through its own description.
"""
import collections

LAST = 2**63 - 1

# An open file description.
Description = collections.namedtuple("Description", "number file mode offset")  # offset: a list of one

# A lock that is held, or wanted. owner: ("process", name) or ("description", number). space: flock, record.
Lock = collections.namedtuple("Lock", "space file owner mode first last")


def clash(a, b):
    return (a.space == b.space and a.file == b.file and a.owner != b.owner and "ex" in (a.mode, b.mode)
            and a.first <= b.last and b.first <= a.last)


def without(held, taken):
    """What is left of a lock when its owner unlocks or converts a part."""
    if (held.space, held.file, held.owner) != (taken.space, taken.file, taken.owner) or not (
            held.first <= taken.last and taken.first <= held.last):
        return [held]
    left = [held._replace(last=taken.first - 1), held._replace(first=taken.last + 1)]
    return [lock for lock in left if lock.first <= lock.last]


def applied(locks, taken):
    """The set of locks after one was taken, or mode "un". The kernel merges what touches."""
    rest = {left for held in locks for left in without(held, taken)}
    if taken.mode == "un":
        return rest
    for held in sorted(rest):
        if held._replace(first=0, last=0) == taken._replace(first=0, last=0) and (
                held.last + 1 == taken.first or taken.last + 1 == held.first):
            rest.remove(held)
            taken = taken._replace(first=min(held.first, taken.first), last=max(held.last, taken.last))
    return rest | {taken}


class Wait(collections.namedtuple("Wait", "lock description")):
    """What a process waits for."""


class Process:
    def __init__(self, host):
        self.host = host
        self.slots = {}  # number -> (Description, close-on-exec)
        self.wait = None


class Inadmissible(Exception):
    pass


def refuse_if(condition, why):
    if condition:
        raise Inadmissible(why)


class State:
    """locks: what is held, as the reference's kernel says (a set of Lock). net: what is played has one outcome with the net, too."""

    net = False
    cycle = ()  # the processes of the cycle that was found last

    def __init__(self, cast, size=10):
        self.processes = {name: Process(host) for name, host in cast.items()}
        self.sizes = collections.defaultdict(lambda: size)
        self.locks = set()
        self.names = set(cast)
        self.descriptions = 0

    def waiting(self):
        return {name: p.wait for name, p in self.processes.items() if p.wait}

    def in_the_way(self, lock):
        return [held for held in self.locks if clash(held, lock)]

    def hosts_in_the_way(self, lock):
        return {p.host for name, p in self.processes.items() for held in self.in_the_way(lock)
                if held.owner == ("process", name) or held.owner in {("description", d.number) for d, _ in p.slots.values()}}

    # --- what a call wants ---

    def description(self, name, slot):
        found = self.processes[name].slots.get(slot)
        return found and found[0]

    def _range(self, d, start, length, whence):
        """(first, last) or None: the kernel refuses."""
        first = start + {"cur": d.offset[0], "end": self.sizes[d.file]}.get(whence, 0)
        last = first + length - 1 if length else LAST
        if length < 0:
            first, last = first + length, first - 1
        if first < 0 or first > LAST or last > LAST:
            return None
        # What two hosts say to each other cannot tell the last two offsets apart (shim/intent.h).
        refuse_if(first == LAST or last == LAST - 1, "between the last two offsets")
        return first, last

    def wanted(self, name, words):
        """(Lock, Description, wait) that a set, get, lockf or flock wants, mode "un" included; None if the kernel refuses it."""
        call, d = words[0], self.description(name, int(words[1]))
        if not d:
            return None
        if call == "flock":
            return Lock("flock", d.file, ("description", d.number), words[2], 0, LAST), d, "nb" not in words[3:]
        if call == "lockf":
            mode = {"lock": "ex", "tlock": "ex", "test": "sh", "ulock": "un"}[words[2]]
            found, ofd, wait = self._range(d, 0, int(words[3]), "cur"), False, words[2] == "lock"
        else:
            mode, rest = words[2], words[5:]
            found = self._range(d, int(words[3]), int(words[4]), next((w for w in rest if w in ("cur", "end")), None))
            ofd, wait = "ofd" in rest, "w" in rest
        is_test = call == "get" or words[2] == "test"
        if not found or (not is_test and mode != "un" and d.mode == {"sh": "w", "ex": "r"}[mode]):
            return None
        return Lock("record", d.file, ("description", d.number) if ofd else ("process", name), mode, *found), d, wait

    # --- what may be played ---

    def plan(self, step):
        """Raises Inadmissible. Else (answer, locks): what will be answered, None if the call waits, "?" if the rules do not say;
        and who will hold what."""
        name, call, *rest = step.split()
        p = self.processes.get(name)
        if name in ("-", "o"):
            return "?", self.locks
        refuse_if(not p, "no such process")
        refuse_if(call != "kill" and bool(p.wait) != (call == "interrupt"), "it waits, or does not")
        answer, locks = "?", self.locks
        if call == "fork":
            refuse_if(rest[0] in self.names, "the name is taken")
        elif call in ("open", "dup"):
            refuse_if(int(rest[-1] if call == "dup" else rest[0]) in p.slots, "the slot is taken")
        elif call in ("close", "reset", "kill", "exec"):
            locks = self._closed(name, [slot for slot, (_, cloexec) in p.slots.items()
                                        if call in ("reset", "kill") or (call == "exec" and cloexec)
                                        or (call == "close" and slot == int(rest[0]))])
        elif call in ("set", "lockf", "flock"):
            answer, locks = self._plan_lock(name, [call, *rest])
        self._check_order(locks, name)
        return answer, locks

    def _closed(self, name, slots):
        p = self.processes[name]
        files = {p.slots[slot][0].file for slot in slots}
        left = {d.number for n, other in self.processes.items() for slot, (d, _) in other.slots.items()
                if n != name or slot not in slots}
        return {lock for lock in self.locks if (lock.owner[1] in left if lock.owner[0] == "description" else
                                                lock.owner[1] != name or lock.file not in files)}

    def _plan_lock(self, name, words):
        found = self.wanted(name, words)
        if not found or words[2] == "test":
            return "?", self.locks
        lock, d, wait = found
        waits = self.waiting().values()
        refuse_if(lock.owner[0] == "description" and any(w.description.number == d.number and w.lock.space == lock.space
                                                         for w in waits), "another waits through this description")
        if lock.space == "flock":
            self._check_conversion(lock, waits)
        blockers = self.in_the_way(lock) if lock.mode != "un" else []
        if not blockers:
            return "ok", applied(self.locks, lock)
        # The kernel drops what flock() converts before it looks.
        left = applied(self.locks, lock._replace(mode="un")) if lock.space == "flock" else self.locks
        if not wait:
            return "EAGAIN", left
        if lock.space == "record" and self._closes_cycle(lock.owner, blockers):
            return "EDEADLK", left
        return None, left

    def _check_order(self, locks, name):
        """The calls that a step frees must not be in each other's way."""
        waits = {n: w.lock for n, w in self.waiting().items() if n != name}
        while freed := [n for n, lock in waits.items() if not any(clash(held, lock) for held in locks)]:
            for n in freed:
                refuse_if(any(clash(waits[n], waits[other]) for other in freed), "two are freed, and only one can get it")
            for n in freed:
                locks = applied(locks, waits.pop(n))

    def _check_conversion(self, lock, waits):
        """The kernel drops the old lock first: a waiting call may be faster."""
        had = [h.mode for h in self.locks if h.space == "flock" and h.owner == lock.owner]
        refuse_if(lock.mode != "un" and had and had != [lock.mode] and any(w.lock.space == "flock" and w.lock.file == lock.file for w in waits),
                  "a conversion while another waits")

    def _closes_cycle(self, caller, blockers):
        """Does the kernel answer EDEADLK? It follows one blocker of each waiting process, so where there are more, the answer is not known."""
        waits = {w.lock.owner: w.lock for w in self.waiting().values() if w.lock.space == "record"}
        ways = {owner: {b.owner for b in self.in_the_way(lock)} for owner, lock in waits.items()}
        ways[caller] = {b.owner for b in blockers}
        seen, todo = [], [caller]
        while todo:
            owner = todo.pop()
            if owner not in seen:
                seen.append(owner)
                todo += ways.get(owner, ())
        waiting = [owner for owner in seen if owner in ways]
        if not any(caller in ways[owner] for owner in waiting):
            return False
        if all(kind == "description" for kind, _ in waiting):
            return False
        refuse_if(any(len(ways[owner]) > 1 for owner in waiting), "a cycle with several ways")
        refuse_if(any(kind == "description" for kind, _ in waiting),
                  "a cycle over OFD locks: keepers look for none, the kernel may, also when one of its calls comes anew")
        behind = [lock for owner, lock in waits.items() if owner in waiting and owner != caller]
        refuse_if(any(clash(lock, other) for lock in behind for owner, other in waits.items() if owner[0] == "description"),
                  "one of a cycle waits behind a call that waits for an OFD lock: Linux looks for no deadlock there")
        self.cycle = [n for _, n in waiting]
        hosts = [self.processes[n].host for n in self.cycle]
        refuse_if(hosts[0] == hosts[1] and len(set(hosts)) > 1,
                  "closed in a local kernel: the keepers give EDEADLK to another one of the cycle")
        refuse_if(self.net and hosts[0] == hosts[1],
                  "closed in a local kernel: another one of the cycle, called back out of it for another host, may come anew just now")
        return True

    # --- what it changes ---

    def start_wait(self, name, words):
        lock, d, _ = self.wanted(name, words)
        self.processes[name].wait = Wait(lock, d)

    def done(self, step, answer):
        """After the call has returned."""
        name, call, *rest = step.split()
        if call == "size":
            self.sizes[rest[0]] = int(rest[1])
        if name in ("-", "o"):
            return
        p = self.processes[name]
        if call == "kill":
            del self.processes[name]
        elif call == "interrupt":
            p.wait = None
        elif call == "reset":
            p.slots.clear()
        elif call == "exec":
            p.slots = {i: s for i, s in p.slots.items() if not s[1]}
        elif call == "close":
            p.slots.pop(int(rest[0]), None)
        elif call == "fork":
            self.names.add(rest[0])
            child = self.processes[rest[0]] = Process(p.host)
            child.slots = dict(p.slots)
        elif not answer.startswith("ok"):
            return
        elif call == "open":
            self.descriptions += 1
            p.slots[int(rest[0])] = (Description(self.descriptions, rest[1], rest[2].rstrip("e"), [0]), rest[2].endswith("e"))
        elif call == "dup":
            p.slots[int(rest[1])] = (p.slots[int(rest[0])][0], False)
        elif call == "seek":
            p.slots[int(rest[0])][0].offset[0] = int(rest[1])

    def granted_by_now(self):
        """The calls that wait for nothing any more."""
        return [name for name, wait in self.waiting().items() if not self.in_the_way(wait.lock)]
