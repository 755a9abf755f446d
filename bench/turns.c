/*
 * turns FILE PEER first|second COUNT REST_US: two of them, on two hosts, hand a lock to and fro. Descriptor PEER is
 * a stream socket between the two. A sample is the time from the holder's call of flock(LOCK_UN) to the
 * waiter's return from flock(LOCK_EX), taken by the waiter. Each of the two waits, and then gives, COUNT times.
 *
 * One turn:  holder                              waiter
 *            "now you wait"  ---- TURN_WAIT --->
 *                            <--- TURN_CALLS ---  flock(LOCK_EX) ...
 *            rests for REST_US
 *            flock(LOCK_UN)                       ... returns: it has the lock
 *                            ---- its time ---->  the sample; then the roles change
 *
 * The rest lets the waiter get into the call, and what the call sets off come to its end. A turn whose waiter had
 * waited for less than half of it when the lock was given up measured something else and is left out.
 */
#include <stdbool.h>
#include <sys/file.h>
#include <sys/socket.h>

#include "bench/bench.h"

enum turn_kind { TURN_WAIT = 1, TURN_CALLS, TURN_GIVEN };

struct turn {
	enum turn_kind kind;
	double at_ns; /* CLOCK_MONOTONIC, one machine: TURN_GIVEN */
};

struct player {
	int lock_fd, peer;
	long rest_us;
	double *samples;
	long count;
};

static void tell(int peer, enum turn_kind kind, double at_ns)
{
	const struct turn turn = {.kind = kind, .at_ns = at_ns};

	if (send(peer, &turn, sizeof(turn), MSG_NOSIGNAL) != (ssize_t)sizeof(turn))
		bench_die("the other one has ended");
}

/* Returns at_ns. */
static double hear(int peer, enum turn_kind kind)
{
	struct turn turn;

	errno = 0;
	if (recv(peer, &turn, sizeof(turn), MSG_WAITALL) != (ssize_t)sizeof(turn))
		bench_die("the other one has ended");
	if (turn.kind != kind)
		bench_die("the other one said something else");
	return turn.at_ns;
}

/* Has the lock; afterwards the other one has it. */
static void give(struct player *p)
{
	double at_ns;

	tell(p->peer, TURN_WAIT, 0);
	hear(p->peer, TURN_CALLS);
	bench_rest(p->rest_us);
	bench_mark();
	at_ns = bench_now_ns();
	if (flock(p->lock_fd, LOCK_UN) != 0)
		bench_die("flock(LOCK_UN)");
	tell(p->peer, TURN_GIVEN, at_ns);
}

static void take(struct player *p)
{
	double called, back, given;

	hear(p->peer, TURN_WAIT);
	tell(p->peer, TURN_CALLS, 0);
	called = bench_now_ns();
	if (flock(p->lock_fd, LOCK_EX) != 0)
		bench_die("flock(LOCK_EX)");
	back = bench_now_ns();
	bench_mark();
	given = hear(p->peer, TURN_GIVEN);
	errno = 0;
	if (back < given)
		bench_die("both had the lock");
	if (given - called > (double)p->rest_us * 1e3 / 2)
		p->samples[p->count++] = back - given;
}

int main(int argc, char **argv)
{
	struct player p;
	bool first;
	long turns;

	if (argc != 6)
		bench_die("turns FILE PEER first|second COUNT REST_US");
	first = strcmp(argv[3], "first") == 0;
	turns = bench_number(argv[4]);
	p = (struct player){.lock_fd = bench_open(argv[1], O_RDWR | O_CREAT),
			    .peer = (int)bench_number(argv[2]),
			    .rest_us = bench_number(argv[5]),
			    .samples = bench_samples(turns)};
	if (first && flock(p.lock_fd, LOCK_EX) != 0)
		bench_die("flock(LOCK_EX)");
	for (long i = 0; i < turns; i++) {
		if (first)
			give(&p);
		take(&p);
		if (!first)
			give(&p);
	}
	return bench_print(p.samples, p.count);
}
