"""Sequences that once did something else on hosts than on one kernel, and what it came from. First each process opens f as its number 0."""

FOUND = {
    "a test is answered with what is in the way, also behind others that wait": """
        p0@c p1@b p2@a
        f:5
        p2 set 0 sh 7 3 ofd w
        p0 set 0 ex 1 4 ofd
        p0 set 0 ex 1 0 ofd w
        p1 get 0 sh 2 6
        p1 set 0 ex 1 1
        p1 set 0 ex 5 1""",
    "an exclusive question does not make a shared waiter wait for more than a downgrade": """
        p0@b p1@c p2@a
        f:5
        p2 set 0 ex 1 2 cur w
        p0 set 0 sh 1 0 w
        p1 set 0 ex 1 2
        p2 set 0 sh 1 2""",
    "a shared question passes an exclusive waiter if the holder has made its lock shared": """
        p0@a p1@b p2@a
        f:0
        p1 fork c1
        p2 set 0 ex 6 4
        p1 set 0 ex 8 1 w
        p2 set 0 sh 8 6
        c1 set 0 sh 8 3""",
    "the same with flock": """
        p0@c p1@b p2@a
        f:0
        p2 flock 0 ex
        p2 flock 0 sh nb
        p1 flock 0 ex
        p0 flock 0 sh nb""",
    "a test sees a downgrade while another one of its host waits": """
        p0@b p1@a p2@b p3@a
        f:0
        p2 set 0 ex 0 1 end w
        p2 dup 0 1
        p3 set 0 ex 0 2 w
        p2 set 1 sh 0 1 w
        o get f sh 0 0 ofd""",
    "what was in the way of a waiting call may have changed when another process tests": """
        p0@b p1@a
        f:0
        p0 set 0 ex 3 -2 w
        p1 set 0 sh 2 1 w
        p0 set 0 sh 1 1 cur w
        o get f sh 2 1""",
    "two leases that cover a third one together": """
        p0@a p1@b p2@a
        f:10
        p0 set 0 ex 3 3 ofd
        p0 set 0 ex 4 3 ofd w
        p0 dup 0 1
        p0 set 1 sh 3 4 ofd""",
    "a part of a lease that another one covers": """
        p0@a p1@c p2@b
        f:10
        p1 lockf 0 test 0
        p1 lockf 0 tlock 1
        p0 set 0 ex 1 1 ofd""",
    "the second of two calls that wait for the same lock closes a cycle": """
        p0@a p1@a p2@b
        f:10
        p2 set 0 sh 2 1 w
        p0 set 0 ex 2 1 w
        p1 open 1 f r
        p1 set 1 sh 1 1
        p2 set 0 ex 0 2 w
        p1 set 0 ex 2 1 w""",
    "a cycle on one host, while another host waits": """
        p0@a p1@a p2@b
        f:10
        p0 set 0 ex 0 1
        p1 set 0 ex 1 1
        p2 set 0 ex 0 2 w
        p0 set 0 ex 1 1 w
        p1 set 0 ex 0 1 w""",
    "a question that does not wait is answered at once, though one of its host waits for the same": """
        p0@b p1@a p2@a
        f:0
        p2 flock 0 sh
        p0 flock 0 ex
        p1 flock 0 sh
        p2 flock 0 un
        p2 flock 0 ex
        p1 open 2 f r
        p1 flock 2 ex nb""",
    "a probe of a lease that is given back is not in the way of a caller that was granted another": """
        p0@a p1@a p2@b
        f:5
        p1 flock 0 sh
        p1 flock 0 sh nb
        p2 set 0 ex 3 -2 ofd w
        p2 flock 0 ex nb
        p2 flock 0 ex nb
        p0 flock 0 ex
        p1 open 2 f rw
        p2 dup 0 1
        p2 set 1 sh 2 1 ofd
        p2 flock 1 sh
        p1 flock 2 ex
        p2 get 0 sh 2 -2 ofd
        p2 open 2 f rw
        p2 flock 1 sh nb
        p2 flock 1 un
        p2 close 0
        p2 flock 1 ex nb
        p2 flock 2 sh nb""",
    "a call for several gaps does not give EDEADLK to a process that waits for a lock beside the first": """
        p0@a p1@a p2@b p3@c
        f:0
        p1 set 0 sh 4 3
        p0 set 0 ex 8 1
        p2 set 0 sh 9 1
        p0 set 0 ex 7 -2 w
        p1 set 0 sh 3 6 end w""",
}

# The same with the net. It depends on the timing, so each is played some times.
FOUND_NET = {
    "a call that waits in the store's queue keeps its place, though its thread's last call is seen out just then": """
        p0@a p1@a p2@b p3@b
        f:10
        p3 seek 0 9
        p0 set 0 sh 3 2
        p1 get 0 ex 1 0
        p3 set 0 ex 2 1 w
        p3 lockf 0 tlock -1
        p1 set 0 ex 0 0 w
        p3 set 0 ex 3 2 w
        p2 set 0 ex 3 1 w
        p0 set 0 un 0 2
        p0 set 0 ex 2 1 w
        p0 set 0 sh 2 1 w""",
}
