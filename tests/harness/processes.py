"""What /proc says of a process. Where it is gone: None, or nothing."""
import contextlib
import os


def pids_where(fits):
    """The processes for which fits(pid) is true. One about which that raises OSError has ended meanwhile, and does not count."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            if fits(pid):
                found.append(pid)
    return found


def raw(path):
    """What is in such a file; in less time than open() takes, since tests look at all processes again and again."""
    fd = os.open(path, os.O_RDONLY)
    try:
        whole = b""
        while part := os.read(fd, 1 << 16):
            whole += part
        return whole
    finally:
        os.close(fd)


def environ(pid):
    """What the process was started with; of one whose first thread has ended, too."""
    if found := raw(f"/proc/{pid}/environ"):
        return found
    for tid in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):  # this thread has ended
            if found := raw(f"/proc/{pid}/task/{tid}/environ"):
                return found
    return b""


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
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return links


def waits_for_lock(pid):
    """The kernel lists it behind a lock."""
    with open("/proc/locks") as f:
        return any(words[1] == "->" and words[5] == str(pid) for words in map(str.split, f))


def threads_of(pid):
    return [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]


def is_traced(tid, tracer):
    with open(f"/proc/{tid}/status") as f:
        return f"TracerPid:\t{tracer}\n" in f.read()
