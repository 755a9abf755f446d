/*
 * stress FILE ARENA NUMBER SEED PAUSE_US: takes and drops locks on FILE as fast as it can, in bursts, until the test
 * ends it: flock() shared and exclusive, POSIX and OFD locks on some of the file's first bytes. Between the bursts are
 * pauses of up to PAUSE_US; 0: no burst is of the slow kinds, either. The workers of all hosts map ARENA. A worker that
 * has a lock is inside the lock's zones, and no two workers may be at work in one zone unless both share it.
 *
 * A worker that enters a zone in which there is a worker that it does not share with notes that in the zone's `met`.
 * The worker inside finds the note when it leaves, and the newcomer sees whether the other one still runs. So a holder
 * whose lease ran out may be inside as long as it is stopped, and must never go on from there; a killed one does not
 * matter either.
 *
 * ARENA is tests/cluster/test_page_stress.py's to make and to read: all 64-bit words, struct arena.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define WORKERS 16
#define BYTES   4
#define FLOCK   BYTES /* the zone of flock(); the others are the bytes' */

struct worker {
	uint64_t calls, locks, failed, ticks, inside, unused[3];
};
struct zone {
	uint64_t exclusive, shared[WORKERS]; /* the worker inside: NUMBER + 1, or 0 */
	uint64_t met[2];                     /* how often a shared newcomer met a worker, and an exclusive one */
};
struct arena {
	uint64_t end, wrong, unused[6];
	struct worker workers[WORKERS];
	struct zone zones[BYTES + 1];
};

static struct arena *arena;
static struct worker *self;
static unsigned number, seed;
static bool slow, blinking; /* in this burst */

struct visit {
	int zone;
	bool exclusive, met_somebody;
	uint64_t met;            /* by workers that this one does not share with */
	uint64_t ticks[WORKERS]; /* of the worker that it met; 0: none */
};

static unsigned dice(unsigned sides) { return (unsigned)rand_r(&seed) / 7 % sides; }

static void wrong(const char *what, int zone)
{
	__atomic_add_fetch(&arena->wrong, 1, __ATOMIC_SEQ_CST);
	printf("worker %u: %s, zone %d\n", number, what, zone);
	fflush(stdout);
	_exit(3);
}

static void meet(struct visit *v, uint64_t who)
{
	if (who == 0 || who == number + 1)
		return;
	v->met_somebody = true;
	v->ticks[who - 1] = __atomic_load_n(&arena->workers[who - 1].ticks, __ATOMIC_SEQ_CST);
}

static uint64_t met_others(const struct zone *zone, bool exclusive)
{
	return __atomic_load_n(&zone->met[1], __ATOMIC_SEQ_CST) +
	       (exclusive ? __atomic_load_n(&zone->met[0], __ATOMIC_SEQ_CST) : 0);
}

static void enter(struct visit *v, int at, bool exclusive)
{
	struct zone *zone = &arena->zones[at];

	*v = (struct visit){.zone = at, .exclusive = exclusive};
	v->met = met_others(zone, exclusive);
	if (exclusive) {
		meet(v, __atomic_exchange_n(&zone->exclusive, number + 1, __ATOMIC_SEQ_CST));
		for (int i = 0; i < WORKERS; i++)
			meet(v, __atomic_load_n(&zone->shared[i], __ATOMIC_SEQ_CST));
	} else {
		__atomic_store_n(&zone->shared[number], number + 1, __ATOMIC_SEQ_CST);
		meet(v, __atomic_load_n(&zone->exclusive, __ATOMIC_SEQ_CST));
	}
	if (v->met_somebody) {
		__atomic_add_fetch(&zone->met[exclusive], 1, __ATOMIC_SEQ_CST);
		v->met += exclusive;
	}
}

static void leave(struct visit *v)
{
	struct zone *zone = &arena->zones[v->zone];
	uint64_t expected = number + 1;

	for (int i = 0; i < WORKERS; i++)
		if (v->ticks[i] && __atomic_load_n(&arena->workers[i].ticks, __ATOMIC_SEQ_CST) != v->ticks[i])
			wrong("came in, and somebody else was at work", v->zone);
	if (met_others(zone, v->exclusive) != v->met)
		wrong("was at work, and somebody else came in", v->zone);
	if (!v->exclusive)
		__atomic_store_n(&zone->shared[number], 0, __ATOMIC_SEQ_CST);
	else if (!__atomic_compare_exchange_n(&zone->exclusive, &expected, 0, false, __ATOMIC_SEQ_CST,
					      __ATOMIC_SEQ_CST))
		wrong("was at work, and somebody else took its place", v->zone);
}

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ll + t.tv_nsec / 1000;
}

static void tick(void) { __atomic_add_fetch(&self->ticks, 1, __ATOMIC_SEQ_CST); }

/* As short as possible, or for as long as a lease may need to go to another host. */
static void work(bool longer)
{
	int64_t until = longer || slow || blinking ? now_us() + 200 + dice(2000) : 0;

	do
		tick();
	while (until && now_us() < until);
}

static void pause_us(long us)
{
	const struct timespec pause = {.tv_nsec = 1000 * us};

	nanosleep(&pause, NULL);
}

static void visit(int first, int last, bool exclusive)
{
	struct visit visits[BYTES + 1];
	bool met = false;

	__atomic_store_n(&self->inside, 1, __ATOMIC_SEQ_CST);
	tick();
	for (int i = first; i <= last; i++) {
		enter(&visits[i], i, exclusive);
		met |= visits[i].met_somebody;
	}
	work(met);
	for (int i = first; i <= last; i++)
		leave(&visits[i]);
	__atomic_store_n(&self->inside, 0, __ATOMIC_SEQ_CST);
	self->locks++;
}

static bool failed(int rc)
{
	self->calls++;
	if (rc == 0)
		return false;
	/* ENOLCK: the store or the keeper could not be had. */
	if (errno != EWOULDBLOCK && errno != EACCES && errno != ENOLCK) {
		printf("worker %u: %s\n", number, strerror(errno));
		exit(4);
	}
	self->failed++;
	return true;
}

static void use_flock(int fd, bool exclusive)
{
	if (failed(flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | (dice(8) ? 0 : LOCK_NB))))
		return;
	visit(FLOCK, FLOCK, exclusive);
	if (flock(fd, LOCK_UN) != 0)
		wrong("cannot unlock", FLOCK);
}

static void use_record(int fd, bool exclusive, bool ofd, bool all)
{
	int first = all ? 0 : (int)dice(BYTES), last = all ? BYTES - 1 : first + (int)dice((unsigned)(BYTES - first));
	bool wait = dice(8);
	struct flock lock = {.l_type = exclusive ? F_WRLCK : F_RDLCK, .l_start = first, .l_len = last - first + 1};

	if (failed(fcntl(fd, ofd ? (wait ? F_OFD_SETLKW : F_OFD_SETLK) : (wait ? F_SETLKW : F_SETLK), &lock)))
		return;
	visit(first, last, exclusive);
	lock.l_type = F_UNLCK;
	if (fcntl(fd, ofd ? F_OFD_SETLK : F_SETLK, &lock) != 0)
		wrong("cannot unlock", first);
}

int main(int argc, char **argv)
{
	unsigned longest;
	int fd = argc == 6 ? open(argv[1], O_RDWR | O_CREAT, 0644) : -1;
	int map = argc == 6 ? open(argv[2], O_RDWR) : -1;

	if (fd < 0 || map < 0)
		return 99;
	arena = mmap(NULL, sizeof(*arena), PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);
	number = (unsigned)atoi(argv[3]);
	seed = (unsigned)atoi(argv[4]);
	longest = (unsigned)atoi(argv[5]);
	if (arena == MAP_FAILED || number >= WORKERS)
		return 99;
	self = &arena->workers[number];
	/* A worker that was killed may have been inside. */
	for (int i = 0; i <= BYTES; i++) {
		uint64_t mine = number + 1;

		__atomic_store_n(&arena->zones[i].shared[number], 0, __ATOMIC_SEQ_CST);
		__atomic_compare_exchange_n(&arena->zones[i].exclusive, &mine, 0, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
	}
	while (!__atomic_load_n(&arena->end, __ATOMIC_SEQ_CST)) {
		int64_t until = now_us() + 500 + dice(30000);
		unsigned what = dice(3), bytes = dice(2), style = dice(8);

		slow = longest && style == 0;             /* nearly always locked */
		blinking = longest && style < 3 && !slow; /* free for as long as the keeper needs to see it */
		do {
			bool exclusive = dice(4);

			if (what == 0)
				use_flock(fd, exclusive);
			else
				use_record(fd, exclusive, what == 1, bytes);
			if (blinking)
				pause_us(dice(200));
		} while (now_us() < until);
		if (longest)
			pause_us(dice(longest));
	}
	return 0;
}
