/*
 * A job that locks by the thousand: `player FILE GROUND KIND CALLS SEED SIGNALS`. KIND is flock, posix or ofd. GROUND is memory in
 * a file that all players of both hosts share: a player that has the lock must be alone there. SIGNALS: 0: none; 1: a handler
 * without SA_RESTART, 2: with it; about a thousand a second. Also built as a static program. Prints one line.
 */
#include <signal.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/time.h>

#include "net.h"

struct ground {
	_Atomic int inside;
	_Atomic long entries, overlaps;
};

static volatile sig_atomic_t signals;
static const char *kind;
static unsigned seed;

static void handler(int signal)
{
	(void)signal;
	signals++;
}

static int lock(int fd, bool wait)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int ret;

	if (kind[0] == 'f')
		ret = flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB));
	else if (kind[0] == 'p')
		ret = fcntl(fd, wait ? F_SETLKW : F_SETLK, &l);
	else
		ret = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &l);
	return ret < 0 ? -errno : 0;
}

/* F_UNLCK may end with EINTR under the net: docs/net.md. */
static void unlock(int fd, long *unlock_again)
{
	struct flock l = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
	int ret;

	if (kind[0] == 'f') {
		flock(fd, LOCK_UN);
		return;
	}
	while ((ret = fcntl(fd, kind[0] == 'p' ? F_SETLK : F_OFD_SETLK, &l)) < 0 && errno == EINTR)
		++*unlock_again;
	if (ret < 0)
		DIE("unlock");
}

static void visit(struct ground *g)
{
	if (atomic_fetch_add(&g->inside, 1) != 0)
		g->overlaps++;
	for (volatile int i = rand_r(&seed) % 3000; i > 0; i--)
		;
	if (rand_r(&seed) % 8 == 0)
		sched_yield();
	g->entries++;
	atomic_fetch_sub(&g->inside, 1);
}

int main(int argc, char **argv)
{
	const struct itimerval often = {{0, 1000}, {0, 1000}};
	struct sigaction sa = {.sa_handler = handler};
	long had = 0, busy = 0, interrupted = 0, refused = 0, again = 0, calls;
	struct ground *g;
	int fd, ground, ret;

	if (argc != 7)
		return 2;
	kind = argv[3];
	calls = atol(argv[4]);
	seed = atoi(argv[5]);
	fd = open(argv[1], O_RDWR);
	ground = open(argv[2], O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ground < 0 || ftruncate(ground, sizeof(*g)) < 0)
		DIE("%s", argv[2]);
	g = mmap(NULL, sizeof(*g), PROT_READ | PROT_WRITE, MAP_SHARED, ground, 0);
	sa.sa_flags = argv[6][0] == '2' ? SA_RESTART : 0;
	sigaction(SIGALRM, &sa, NULL);
	if (argv[6][0] != '0')
		setitimer(ITIMER_REAL, &often, NULL);
	while (calls-- > 0) {
		ret = lock(fd, rand_r(&seed) % 2);
		if (ret == 0) {
			had++;
			visit(g);
			unlock(fd, &again);
		} else if (ret == -EWOULDBLOCK || ret == -EACCES) {
			busy++;
		} else if (ret == -EINTR) {
			interrupted++;
		} else if (ret == -ENOLCK) {
			refused++;
		} else {
			errno = -ret;
			DIE("lock");
		}
	}
	printf("had %ld busy %ld interrupted %ld refused %ld unlocked-again %ld signals %d\n", had, busy, interrupted,
	       refused, again, (int)signals);
	return 0;
}
