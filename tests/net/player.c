/*
 * A job that locks by the thousand: `player FILE GROUND KIND CALLS SEED SIGNALS SHARES`. KIND is flock, posix or ofd. GROUND is memory in
 * a file that all players of both hosts share: a player that has the lock exclusively must be alone there. SHARES: percent
 * of the locks that are shared; some of them are converted. SIGNALS: 0: none; 1: a handler
 * without SA_RESTART, 2: with it; about a thousand a second. Also built as a static program. Prints one line.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#define WRITER 0x10000

struct ground {
	_Atomic int inside; /* readers, and writers times WRITER */
	_Atomic long entries, overlaps;
};

static volatile sig_atomic_t signals;
static const char *kind;
static unsigned seed; /* of rand_r(), whose numbers are not negative */
static long had, shared, converted, busy, interrupted, refused, deadlocks, unlocked_again;

static void handler(int signal) { signals++; }

static int lock(int fd, bool exclusive, bool wait)
{
	struct flock l = {.l_type = exclusive ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET};
	int ret;

	if (kind[0] == 'f')
		ret = flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | (wait ? 0 : LOCK_NB));
	else if (kind[0] == 'p')
		ret = fcntl(fd, wait ? F_SETLKW : F_SETLK, &l);
	else
		ret = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &l);
	ret = ret < 0 ? -errno : 0;
	if (ret == 0)
		had++;
	else if (ret == -EWOULDBLOCK || ret == -EACCES)
		busy++;
	else if (ret == -EINTR)
		interrupted++;
	else if (ret == -ENOLCK)
		refused++;
	else if (ret == -EDEADLK)
		deadlocks++;
	else
		errx(99, "lock: %d", ret);
	return ret;
}

/* F_UNLCK may end with EINTR under the net: docs/net.md. */
static void unlock(int fd)
{
	struct flock l = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
	int ret;

	if (kind[0] == 'f') {
		flock(fd, LOCK_UN);
		return;
	}
	while ((ret = fcntl(fd, kind[0] == 'p' ? F_SETLK : F_OFD_SETLK, &l)) < 0 && errno == EINTR)
		unlocked_again++;
	if (ret < 0)
		err(99, "unlock");
}

static void visit(struct ground *g, bool exclusive)
{
	int mine = exclusive ? WRITER : 1, before = atomic_fetch_add(&g->inside, mine);

	if (exclusive ? before != 0 : before >= WRITER)
		g->overlaps++;
	for (volatile int i = rand_r(&seed) % 3000; i > 0; i--)
		;
	if (rand_r(&seed) % 8 == 0)
		sched_yield();
	g->entries++;
	atomic_fetch_sub(&g->inside, mine);
}

/* Two readers that both wait to become writers wait for ever, on two hosts unseen: records are converted without waiting. */
static void play(int fd, struct ground *g, int shares)
{
	bool exclusive = rand_r(&seed) % 100 >= shares;

	if (lock(fd, exclusive, rand_r(&seed) % 2) < 0)
		return;
	visit(g, exclusive);
	if (!exclusive) {
		shared++;
		if (rand_r(&seed) % 3 == 0) {
			exclusive = lock(fd, true, kind[0] == 'f' && rand_r(&seed) % 2) == 0;
			converted += exclusive;
			if (exclusive)
				visit(g, true);
		}
	}
	unlock(fd);
}

int main(int argc, char **argv)
{
	const struct itimerval often = {{0, 1000}, {0, 1000}};
	struct sigaction sa = {.sa_handler = handler};
	struct ground *g;
	long calls;
	int fd, ground;

	if (argc != 8)
		return 2;
	kind = argv[3];
	seed = atoi(argv[5]);
	fd = open(argv[1], O_RDWR);
	ground = open(argv[2], O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ground < 0 || ftruncate(ground, sizeof(*g)) < 0)
		err(99, "%s", argv[2]);
	g = mmap(NULL, sizeof(*g), PROT_READ | PROT_WRITE, MAP_SHARED, ground, 0);
	sa.sa_flags = argv[6][0] == '2' ? SA_RESTART : 0;
	sigaction(SIGALRM, &sa, NULL);
	if (argv[6][0] != '0')
		setitimer(ITIMER_REAL, &often, NULL);
	for (calls = atol(argv[4]); calls > 0; calls--)
		play(fd, g, atoi(argv[7]));
	printf("had %ld shared %ld converted %ld busy %ld interrupted %ld refused %ld deadlocks %ld unlocked-again %ld signals %d\n",
	       had, shared, converted, busy, interrupted, refused, deadlocks, unlocked_again, (int)signals);
	return 0;
}
