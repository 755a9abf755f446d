/*
 * freeze DIR HELD IDLE PROCESSES CHILDREN SECONDS: how long the keeper's parent takes to stop the holders of HELD leases.
 *
 * The table of leases that keeper and parent share is made by hand: a slot for each of HELD files in DIR, which PROCESSES
 * processes have locked, and for each of IDLE files that nobody has locked. The first of the processes has CHILDREN
 * children, which have no descriptor of these files. (One keeper could not have so many leases
 * where a process may have 20,000 descriptors.) Then the moment to freeze comes, with SECONDS until the deadline. Each
 * holder writes down the time, without a pause, until it is stopped.
 *
 * Prints three samples: from that moment until the last holder ran; until all are known to be stopped, and who else may
 * hold a lock has been looked for; and the processor's time that this took.
 */
#include <signal.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "bench/bench.h"
#include "keeper/clock.h"
#include "keeper/guard/freeze.h"
#include "keeper/guard/table.h"
#include "keeper/guard/table_text.h"

static const char *dir;

static int open_nth(long n)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%ld", dir, n);
	return bench_open(path, O_RDWR | O_CREAT);
}

static void take_slot(struct table *table, long n)
{
	const struct store_range all = {.space = WIRE_FLOCK, .mode = WIRE_EXCLUSIVE, .to = WIRE_EOF};
	struct table_lease lease = {.token = "0123456789abcdef0123456789abcdef",
				    .name = "bench",
				    .path = dir,
				    .range = all,
				    .on_lost = ON_LOST_FREEZE};
	struct stat st;
	uint32_t slot;
	int fd = open_nth(n);

	if (fstat(fd, &st) != 0)
		bench_die("fstat");
	lease.file.dev = st.st_dev;
	lease.file.ino = st.st_ino;
	if (table_ask(table, &lease, &slot) < 0)
		bench_die("more leases than there is room for");
	table_grant(table, slot, 1, &all, &lease.file);
	close(fd);
}

static void have_children(long count)
{
	for (long n = 0; n < count; n++) {
		pid_t pid = fork();

		if (pid < 0)
			bench_die("fork");
		if (pid == 0)
			for (prctl(PR_SET_PDEATHSIG, SIGKILL);;)
				pause();
	}
}

static void hold(long from, long count, long step, int ready, volatile double *at, long children)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	have_children(children);
	for (long n = from; n < count; n += step)
		if (flock(open_nth(n), LOCK_EX) != 0)
			bench_die("flock");
	if (write(ready, "r", 1) != 1)
		bench_die("the pipe");
	for (const struct timespec pause = {.tv_nsec = 50000};;) {
		*at = bench_now_ns();
		nanosleep(&pause, NULL);
	}
}

static double processor_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void make_table(struct table *table)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char why[256];

	unlinkat(fd, TABLE_NAME, 0); /* of the last run */
	errno = fd < 0 ? errno : -table_open(table, fd, why, sizeof(why));
	if (errno == 0)
		errno = -table_text_open(table);
	if (errno)
		bench_die(dir);
}

int main(int argc, char **argv)
{
	struct rlimit limit;
	struct freeze *freezer;
	struct table table;
	long held, idle, processes, children;
	double begin, done, spent, last = 0;
	volatile double *at;
	int64_t now;
	int ready[2];
	char byte;

	if (argc != 7)
		bench_die("freeze DIR HELD IDLE PROCESSES CHILDREN SECONDS");
	dir = argv[1];
	held = bench_number(argv[2]);
	idle = bench_number(argv[3]);
	processes = bench_number(argv[4]);
	children = bench_number(argv[5]);
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	at = mmap(NULL, (size_t)processes * sizeof(*at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED || pipe(ready) != 0)
		bench_die("mmap");
	for (long p = 0; p < processes; p++)
		if (fork() == 0)
			hold(p, held, processes, ready[1], &at[p], p ? 0 : children);
	close(ready[1]);
	for (long p = 0; p < processes; p++)
		if (read(ready[0], &byte, 1) != 1)
			return EXIT_FAILURE; /* the process said why */
	make_table(&table);
	freezer = freeze_new(&table);
	for (long n = 0; n < held + idle; n++)
		take_slot(&table, n);
	if (!freezer)
		bench_die("freeze_new");
	freeze_set_keeper(freezer, -1);
	now = clock_now_ns();
	begin = bench_now_ns();
	table_renewed(&table, 0, now, now + bench_number(argv[6]) * 1000 * NS_PER_MS);
	spent = processor_ns();
	freezer_look(freezer, 1000);
	done = bench_now_ns();
	spent = processor_ns() - spent;
	if (table.head->frozen_count != (uint32_t)(processes + children))
		bench_die("not all are frozen");
	for (long p = 0; p < processes; p++)
		last = at[p] > last ? at[p] : last;
	printf("%.0f\n%.0f\n%.0f\n", last > begin ? last - begin : 1, done - begin, spent);
	return EXIT_SUCCESS; /* which ends the holders */
}
