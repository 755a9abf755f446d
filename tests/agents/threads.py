"""
Eight threads, each with a descriptor of its own, lock FILE again and again: threads.py FILE WITNESS ROUNDS [HOLD_MS]

The thread that has the lock makes and removes WITNESS, which all hosts share, and every fourth time takes up to HOLD_MS in between; if it was
there already, two had the lock: WITNESS.overlap says so and ends all of them. WITNESS.end, made by the test, ends them, too. Prints how often a
thread had the lock, or what failed.
"""
import fcntl
import os
import random
import sys
import threading
import time

path, witness, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
hold_ms = int(sys.argv[4]) if len(sys.argv) > 4 else 0
had = [0] * 8


def work(number):
    with open(path, "r+b") as file:
        while had[number] < rounds and not os.path.exists(witness + ".overlap") and not os.path.exists(witness + ".end"):
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                os.mkdir(witness)
            except FileExistsError:
                os.makedirs(witness + ".overlap", exist_ok=True)
                return
            if hold_ms and random.randrange(4) == 0:
                time.sleep(random.randrange(hold_ms) / 1000)
            os.rmdir(witness)
            fcntl.flock(file, fcntl.LOCK_UN)
            had[number] += 1


def work_or_end(number):
    try:
        work(number)
    except OSError as e:
        print(e, flush=True)
        os._exit(1)


threads = [threading.Thread(target=work_or_end, args=[number]) for number in range(len(had))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sum(had))
