"""What /proc says of a process. Where it is gone: None, or nothing."""
import os


def stat(pid):
    """State, parent, session ...: what follows the command in /proc/PID/stat."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()
    except OSError:
        return None


def state(pid):
    """Its letter; "gone"."""
    return (stat(pid) or ["gone"])[0]


def comm(pid):
    try:
        with open(f"/proc/{pid}/comm") as f:
            return f.read().strip()
    except OSError:
        return None


def children(pid):
    """Of its first thread."""
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(child) for child in f.read().split()]


def wait_channel(pid):
    with open(f"/proc/{pid}/wchan") as f:
        return f.read()


def files_of(pid):
    links = (f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd"))
    return [os.readlink(link) for link in links if os.path.lexists(link)]


def waits_for_lock(pid):
    """The kernel lists it behind a lock."""
    with open("/proc/locks") as f:
        return any(words[1] == "->" and words[5] == str(pid) for words in map(str.split, f))


def is_traced(pid, tracer):
    """Are all of its threads?"""
    def traced(tid):
        with open(f"/proc/{pid}/task/{tid}/status") as f:
            return f"TracerPid:\t{tracer}\n" in f.read()
    return all(map(traced, os.listdir(f"/proc/{pid}/task")))
