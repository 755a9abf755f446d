/*
 * Runs seeds, each in a process of its own. See `sim --help`.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "keeper/callers/session.h"
#include "tests/sim/sim.h"

#define LIMIT        (400 * SEC) /* of simulated time, for a run */
#define REAL_LIMIT_S 120         /* of real time: more means an endless loop */
#define MAX_JOBS     16
#define DROP_BYTES   256
#define TRACE_LINES  120 /* that are shown of a seed that fails */

struct options {
	uint64_t from, count;
	int jobs, seconds, failures;
	bool one, minimise, twice;
	const char *found, *drop, *lives;
};

/* --- one run --- */

static bool all_given_back(void)
{
	for (int i = 0; i < sim_host_count; i++)
		if (sim_hosts[i].up && (!sim_hosts[i].k || sim_hosts[i].k->leases || sim_hosts[i].k->sessions->all ||
					sim_hosts[i].k->files))
			return false;
	return true;
}

static bool never(void) { return false; }

static void run(const char *dir)
{
	struct rng world = rng_of("world", 0);

	hosts_prepare(dir);
	server_start();
	hosts_start((int)rng_between(&world, 2, SIM_HOSTS + 1));
	programs_start((int)rng_between(&world, 2, 10));
	faults_plan();
	operator_plan();
	sim_run(never, faults_end + NET_LATEST);
	if (!sim_run(programs_ended, LIMIT))
		sim_fail("no progress: programs still wait for locks");
	programs_finish();
	if (!sim_run(programs_ended, 2 * LIMIT))
		sim_fail("no progress: a lock that nobody uses is not to be had");
	sim_run(all_given_back, sim_now + 60 * SEC);
	check_end();
	lives_end();
}

/* --- many --- */

static uint64_t *digest; /* of the last run's schedule; shared with its process */

static int64_t real_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw) { return remove(path); }

/*
 * In a process and a folder of its own: nothing of a run may reach the next one. (A folder that all runs had kept the
 * copy of the first run's configuration, which has another dead_ms.) The process writes its output to the file `out`
 * (NULL: to this process's output). 0: everything that must hold did hold.
 */
static int run_seed(uint64_t seed, const char *drop, const char *worker_dir, bool trace, const char *out)
{
	char dir[80];
	pid_t pid;
	int status;

	snprintf(dir, sizeof(dir), "%.70s/run", worker_dir);
	if (mkdir(dir, 0700) != 0) {
		perror(dir);
		exit(3);
	}
	*digest = 0;
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		if (out && !freopen(out, "w", stdout))
			_Exit(3);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(REAL_LIMIT_S);
		signal(SIGPIPE, SIG_IGN);
		sim_seed = seed;
		sim_digest = digest;
		faults_drop = drop;
		sim_tracing = trace;
		run(dir);
		fflush(stdout);
		_Exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		exit(3);
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	if (WIFSIGNALED(status) && !out)
		printf("seed %llu: %s\n", (unsigned long long)seed, strsignal(WTERMSIG(status)));
	return status;
}

/* Leaves out one fault or program after the other, as long as it goes on failing. */
static void minimise(uint64_t seed, char drop[DROP_BYTES], const char *dir)
{
	static const char *const words[] = {"m0", "l0", "h0", "s0", "k0", "r0", "f0",  "f1",  "f2", "f3",
					    "f4", "f5", "f6", "f7", "f8", "f9", "p0",  "p1",  "p2", "p3",
					    "p4", "p5", "p6", "p7", "p8", "p9", "p10", "p11", "p12"};
	char longer[DROP_BYTES];

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		snprintf(longer, sizeof(longer), "%.240s%s%s", drop, *drop ? "," : "", words[i]);
		if (run_seed(seed, longer, dir, false, "/dev/null") != 0)
			memcpy(drop, longer, sizeof(longer));
	}
}

static void show_trace(uint64_t seed, const char *drop, const char *dir)
{
	char path[128], line[1024];
	long count = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/trace", dir);
	run_seed(seed, drop, dir, true, path);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		count++;
	if (f)
		rewind(f);
	for (; f && fgets(line, sizeof(line), f); count--)
		if (count <= TRACE_LINES)
			fputs(line, stdout);
	if (f)
		fclose(f);
}

static int failed_seed(const struct options *o, const char *dir, uint64_t seed, const char *drop)
{
	char least[DROP_BYTES];

	snprintf(least, sizeof(least), "%s", drop);
	printf("seed %llu FAILED\n", (unsigned long long)seed);
	if (o->minimise) {
		minimise(seed, least, dir);
		show_trace(seed, least, dir);
	}
	printf("replay: sim --seed %llu%s%s\n", (unsigned long long)seed, *least ? " --drop " : "", least);
	return 1;
}

/* Runs the seed again, now after another one: the schedule must be the same. */
static int same_again(const struct options *o, const char *dir, uint64_t seed)
{
	uint64_t first = *digest;

	run_seed(seed + 1, o->drop, dir, false, "/dev/null");
	run_seed(seed, o->drop, dir, false, "/dev/null");
	if (*digest == first)
		return 0;
	printf("seed %llu: run again, it is another schedule: a defect of the simulator\n", (unsigned long long)seed);
	return 1;
}

/* Every `step`th seed, until the time is over. Returns how many failed. */
static int work(const struct options *o, const char *dir, uint64_t first, uint64_t step, uint64_t *done)
{
	int64_t end = o->seconds ? real_ms() + o->seconds * 1000 : INT64_MAX;
	int failed = 0;

	for (uint64_t seed = first; seed < o->from + o->count && failed < o->failures && real_ms() < end;
	     seed += step) {
		++*done;
		if (run_seed(seed, o->drop, dir, false, NULL) != 0)
			failed += failed_seed(o, dir, seed, o->drop);
		else if (o->twice)
			failed += same_again(o, dir, seed);
	}
	return failed;
}

/* The seeds that once failed: "SEED [DROP] # what it was". */
static int run_found(const struct options *o, const char *dir, uint64_t *done)
{
	FILE *f = fopen(o->found, "re");
	char line[512], drop[200];
	unsigned long long seed;
	int failed = 0, n;

	if (!f) {
		fprintf(stderr, "%s: %s\n", o->found, strerror(errno));
		exit(3);
	}
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "#\n")] = '\0';
		n = sscanf(line, "%llu %199s", &seed, drop);
		if (n < 1)
			continue;
		++*done;
		if (run_seed(seed, n == 2 ? drop : "", dir, false, NULL) != 0)
			failed += failed_seed(o, dir, seed, n == 2 ? drop : "");
	}
	fclose(f);
	return failed;
}

static int one_worker(const struct options *o, const char *dir, int number)
{
	char own[64];
	uint64_t done = 0;
	int failed = 0;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	digest = mmap(NULL, sizeof(*digest), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (digest == MAP_FAILED) {
		perror("mmap");
		exit(3);
	}
	snprintf(own, sizeof(own), "%.40s/%d", dir, number);
	if (mkdir(own, 0700) != 0) {
		perror(own);
		exit(3);
	}
	if (o->one)
		failed = run_seed(o->from, o->drop, own, true, NULL) != 0;
	else if (number == 0 && o->found)
		failed = run_found(o, own, &done);
	if (!o->one && !failed)
		failed = work(o, own, o->from + (uint64_t)number, (uint64_t)o->jobs, &done);
	if (!o->one)
		printf("%llu schedules, %d failed\n", (unsigned long long)done, failed);
	fflush(stdout);
	return failed;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case 's':
		o->one = true;
		o->from = strtoull(arg, NULL, 10);
		return 0;
	case 'f':
		o->from = strtoull(arg, NULL, 10);
		return 0;
	case 'n':
		o->count = strtoull(arg, NULL, 10);
		return 0;
	case 't':
		o->seconds = atoi(arg);
		return 0;
	case 'j':
		o->jobs = atoi(arg) > MAX_JOBS ? MAX_JOBS : atoi(arg);
		return 0;
	case 'l':
		o->found = arg;
		return 0;
	case 'd':
		o->drop = arg;
		return 0;
	case 'e':
		o->failures = atoi(arg);
		return 0;
	case 'm':
		o->minimise = true;
		return 0;
	case 'v':
		o->lives = arg;
		return 0;
	case '2':
		o->twice = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{"seed", 's', "SEED", 0, "Run this one, with its trace", 0},
	{"from", 'f', "SEED", 0, "The first one (1)", 0},
	{"count", 'n', "N", 0, "How many (1000)", 0},
	{"seconds", 't', "N", 0, "Begin none after N seconds", 0},
	{"jobs", 'j', "N", 0, "Processes that run them (2)", 0},
	{"failures", 'e', "N", 0, "End a process after so many (5)", 0},
	{"found", 'l', "FILE", 0, "Seeds that are run first: one per line, what to leave out, # a remark", 0},
	{"drop", 'd', "LIST", 0,
	 "Faults, programs, ... to leave out: \"f0,f3,p1\"; l0: message loss, h0: hiccups, s0: slow packets, k0: "
	 "killed parents; o0: operators; r0: rests; m0: shards; d0: the bound of the steps of the server's clock",
	 0},
	{"minimise", 'm', NULL, 0, "Find out for a seed that fails what can be left out, and show the end of its trace",
	 0},
	{"lives", 'v', "FILE", 0, "Append to it what happened to the slots of the tables of leases (lives.c)", 0},
	{"twice", '2', NULL, 0, "Run each again, behind another one: it must be the same schedule", 0},
	{0},
};

static pid_t workers[MAX_JOBS]; /* 0: none */

/* Their folders are to be removed when they have ended. */
static void end_workers(int number)
{
	for (int i = 0; i < MAX_JOBS; i++)
		if (workers[i] > 0)
			kill(workers[i], SIGTERM);
}

/* 0, or 1 if one failed; then the others are ended, too. */
static int wait_for_workers(void)
{
	int failed = 0, status;
	pid_t pid;

	while ((pid = wait(&status)) > 0 || errno == EINTR) {
		bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;

		for (int i = 0; pid > 0 && i < MAX_JOBS; i++)
			if (workers[i] == pid)
				workers[i] = 0;
		if (pid > 0 && !good)
			end_workers(0);
		failed |= pid > 0 && !good;
	}
	return failed;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.doc = "Runs the keeper and the store's scripts under a scheduler, seed by seed."};
	struct options o = {.from = 1, .count = 1000, .jobs = 2, .failures = 5, .drop = ""};
	char dir[] = "/dev/shm/dflock-sim-XXXXXX";
	int failed;

	argp_parse(&argp, argc, argv, 0, NULL, &o);
	if (o.one)
		o.jobs = 1;
	if (!mkdtemp(dir)) {
		perror(dir);
		return 3;
	}
	if (o.lives && lives_open(o.lives) != 0) {
		perror(o.lives);
		return 3;
	}
	sigaction(SIGTERM, &(struct sigaction){.sa_handler = end_workers}, NULL);
	sigaction(SIGINT, &(struct sigaction){.sa_handler = end_workers}, NULL);
	for (int i = 0; i < o.jobs; i++) {
		workers[i] = fork();
		if (workers[i] == 0) {
			signal(SIGTERM, SIG_DFL);
			signal(SIGINT, SIG_DFL);
			exit(one_worker(&o, dir, i) ? 1 : 0);
		}
	}
	failed = wait_for_workers();
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return failed;
}
