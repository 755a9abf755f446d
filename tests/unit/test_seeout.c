/* Seeing threads out of their calls: what proves it, what does not, and that no thread notices. */
#include "keeper/kernel/seeout.h"

#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>

#include "keeper/kernel/family.h"
#include "tests/unit/suite.h"
#include "tests/unit/wait_until.h"

static uv_loop_t loop;

enum where { SLEEPS, RUNS, WAITS_FOR_LOCK, WILL_WAIT };
static volatile bool *may_go; /* WILL_WAIT runs until then */

/* A process that is there; it says how its lock call ended in its exit status. `fd`: locked by this process. */
static pid_t start(enum where where, int fd)
{
	pid_t pid = fork();
	char path[64];
	int own;

	ck_assert_int_ge(pid, 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = where >= WAITS_FOR_LOCK ? open(path, O_RDWR | O_CLOEXEC) : -1;
	while (where == WILL_WAIT && !*may_go)
		;
	if (where >= WAITS_FOR_LOCK)
		_exit(flock(own, LOCK_EX) == 0 ? 0 : errno);
	for (;;)
		if (where == SLEEPS)
			pause();
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static bool sleeps(pid_t pid) { return family_state(pid) == 'S'; }

static enum seeout_answer seen(pid_t pid, enum seeout_how how) { return seeout_now(pid, family_started(pid), how); }

TEST(sleeps_in_another_call)
{
	pid_t pid = start(SLEEPS, -1);

	wait_until(sleeps(pid));
	ck_assert_int_eq(seen(pid, SEEOUT_GENTLY), SEEOUT_OUT);
	end(pid);
}

TEST(runs)
{
	pid_t pid = start(RUNS, -1);
	int status;

	ck_assert_int_eq(seen(pid, SEEOUT_GENTLY), SEEOUT_REFUSED);
	ck_assert_int_eq(seen(pid, SEEOUT_PATIENTLY), SEEOUT_OUT);
	ck_assert_int_eq(seen(pid, SEEOUT_AT_ONCE), SEEOUT_OUT);
	/* Another one has its number. */
	ck_assert_int_eq(seeout_now(pid, family_started(pid) - 1, SEEOUT_GENTLY), SEEOUT_OUT);
	/* It is stopped: it stays so, and goes on when it is told to. */
	kill(pid, SIGSTOP);
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert_int_eq(seen(pid, SEEOUT_AT_ONCE), SEEOUT_OUT);
	ck_assert_int_eq(family_state(pid), 'T');
	end(pid);
}

/* Its call begins anew: it waits on, and gets the lock. */
TEST(waits_for_the_lock)
{
	char path[SUITE_PATH_BYTES];
	int fd = suite_make_file(path, "/dev/shm"), status;
	pid_t pid;

	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	pid = start(WAITS_FOR_LOCK, fd);
	wait_until(sleeps(pid));
	ck_assert_int_eq(seen(pid, SEEOUT_GENTLY), SEEOUT_REFUSED);
	ck_assert_int_eq(seen(pid, SEEOUT_PATIENTLY), SEEOUT_REFUSED);
	for (int i = 0; i < 20; i++) {
		wait_until(sleeps(pid));
		ck_assert_int_eq(seen(pid, SEEOUT_AT_ONCE), SEEOUT_CALLED_BACK);
	}
	wait_until(sleeps(pid));
	ck_assert_int_eq(flock(fd, LOCK_UN), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	unlink(path);
	close(fd);
}

static pid_t goes_meanwhile; /* while who looks at it sleeps */

int nanosleep(const struct timespec *length, struct timespec *left)
{
	const pid_t pid = goes_meanwhile;

	if (pid) {
		goes_meanwhile = 0;
		*may_go = true;
		wait_until(sleeps(pid));
	}
	return clock_nanosleep(CLOCK_MONOTONIC, 0, length, left);
}

/* It was called back lately, and is on its way to where it waited. On a busy machine it would never get there otherwise. */
TEST(is_on_its_way_to_wait)
{
	char path[SUITE_PATH_BYTES];
	int fd = suite_make_file(path, "/dev/shm");
	pid_t pid;

	may_go = mmap(NULL, sizeof(*may_go), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert(may_go != MAP_FAILED);
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	pid = start(WILL_WAIT, fd);
	goes_meanwhile = pid;
	ck_assert_int_eq(seen(pid, SEEOUT_PATIENTLY), SEEOUT_REFUSED);
	ck_assert_int_eq(goes_meanwhile, 0);
	end(pid);
	unlink(path);
	close(fd);
}

TEST(has_ended)
{
	pid_t pid = start(SLEEPS, -1);
	uint64_t started = family_started(pid);
	siginfo_t info;

	kill(pid, SIGKILL);
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	ck_assert_int_eq(seeout_now(pid, started, SEEOUT_AT_ONCE), SEEOUT_OUT); /* nobody has waited for it so far */
	end(pid);
	ck_assert_int_eq(seeout_now(pid, started, SEEOUT_AT_ONCE), SEEOUT_OUT);
}

/*
 * A child of ours that this process traces. A keeper without a free descriptor sees nothing, and that proves nothing, too: neither that the
 * thread has ended, nor that it sleeps.
 */
TEST_EACH(another_process_traces_it, 2)
{
	const struct rlimit none = {.rlim_cur = 0, .rlim_max = 0};
	pid_t pid = start(RUNS, -1), looker;
	uint64_t began = family_started(pid);
	int status;

	ck_assert_int_eq(ptrace(PTRACE_SEIZE, pid, NULL, NULL), 0);
	looker = fork();
	if (looker == 0)
		_exit((!_i || setrlimit(RLIMIT_NOFILE, &none) == 0) &&
				      seeout_now(pid, began, SEEOUT_GENTLY) == SEEOUT_REFUSED &&
				      seeout_now(pid, began, SEEOUT_AT_ONCE) == SEEOUT_REFUSED
			      ? 0
			      : 1);
	ck_assert_int_eq(waitpid(looker, &status, 0), looker);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	end(pid);
}

static int go[2], told[2];

/* Many arguments, so that execve() takes long before it changes the thread's number. */
static void *execute(void *arg)
{
	static char word[100000], *words[12] = {"true"};
	pid_t tid = gettid();
	char c;

	memset(word, 'x', sizeof(word) - 1);
	for (int i = 1; i < 11; i++)
		words[i] = word;
	if (write(told[1], &tid, sizeof(tid)) == sizeof(tid) && read(go[0], &c, 1) == 1)
		execv("/bin/true", words);
	return arg;
}

static bool has_ended_by_itself(pid_t pid, int *status) { return waitpid(pid, status, WNOHANG) == pid; }

/* A thread that is not its process's first one gets the number of that by execve(). Neither who looks nor the program hangs. */
TEST_EACH(executes_meanwhile, 60)
{
	const struct timespec delay = {.tv_nsec = 20000L * _i};
	pid_t pid, tid, looker;
	pthread_t thread;
	uint64_t started;
	int status;

	ck_assert(pipe(go) == 0 && pipe(told) == 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (pthread_create(&thread, NULL, execute, NULL) == 0)
			pause();
		_exit(1);
	}
	ck_assert_int_eq(read(told[0], &tid, sizeof(tid)), sizeof(tid));
	started = family_started(tid);
	wait_until(sleeps(tid));
	looker = fork();
	if (looker == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (write(go[1], "x", 1) != 1)
			_exit(1);
		nanosleep(&delay, NULL);
		seeout_now(tid, started, SEEOUT_AT_ONCE);
		pause(); /* the kernel would let go of what a process traces that ends */
	}
	wait_until(has_ended_by_itself(pid, &status));
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	end(looker);
	for (int i = 0; i < 2; i++) {
		close(go[i]);
		close(told[i]);
	}
}

/* --- many --- */

struct recent {
	struct seeouts *all;
	unsigned answers[3], tags;
};

static void on_seen(void *arg, size_t tag, enum seeout_answer answer)
{
	struct recent *seen = arg;

	seen->answers[answer]++;
	seen->tags |= 1u << tag;
}

static bool all_seen(const struct recent *seen)
{
	uv_run(&loop, UV_RUN_NOWAIT);
	return seen->answers[SEEOUT_OUT] + seen->answers[SEEOUT_REFUSED] == SEEOUT_USER_MAX;
}

static void on_idle(uv_idle_t *idle) {}

static void setup_many(struct recent *seen, uv_idle_t *alive)
{
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	uv_idle_init(&loop, alive);
	uv_idle_start(alive, on_idle);
	seen->all = seeouts_new(&loop, on_seen, seen);
	ck_assert_ptr_nonnull(seen->all);
}

static void end_many(struct recent *seen, uv_idle_t *alive, unsigned started)
{
	wait_until((uv_run(&loop, UV_RUN_NOWAIT), seen->answers[SEEOUT_OUT] == started));
	seeouts_free(seen->all);
	uv_close((uv_handle_t *)alive, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

TEST(one_user_has_a_part_of_the_room)
{
	pid_t pid = start(SLEEPS, -1);
	struct recent seen = {0};
	uv_idle_t alive; /* as the keeper's loop always is */

	setup_many(&seen, &alive);
	wait_until(sleeps(pid));
	for (size_t i = 0; i < SEEOUT_USER_MAX; i++)
		ck_assert_int_eq(seeout_start(seen.all, pid, family_started(pid), SEEOUT_AT_ONCE, 1000, i), 0);
	ck_assert_int_eq(seeout_start(seen.all, pid, family_started(pid), SEEOUT_AT_ONCE, 1000, 31), -EAGAIN);
	wait_until(all_seen(&seen));
	ck_assert_uint_eq(seen.answers[SEEOUT_OUT], SEEOUT_USER_MAX);
	ck_assert_uint_eq(seen.tags, (1u << SEEOUT_USER_MAX) - 1);
	/* Gently: a thread of its parent that traces it would wait for its end in the place of end(). */
	ck_assert_int_eq(seeout_start(seen.all, pid, family_started(pid), SEEOUT_GENTLY, 1000, 31), 0);
	end_many(&seen, &alive, SEEOUT_USER_MAX + 1);
	end(pid);
}

/* The loop does not run meanwhile, so nobody gives a place back. Starts one for a process that has ended, as often as there is room, users with consecutive numbers having `each`. How many. */
static unsigned fill(struct recent *seen, enum seeout_how how, uid_t uid, unsigned each)
{
	unsigned count = 0;

	while (seeout_start(seen->all, getpid(), 1, how, each ? uid + count / each : uid, 0) == 0)
		count++;
	return count;
}

TEST(users_leave_room_for_root)
{
	struct recent seen = {0};
	uv_idle_t alive;

	setup_many(&seen, &alive);
	ck_assert_uint_eq(fill(&seen, SEEOUT_PATIENTLY, 1000, SEEOUT_USER_MAX), SEEOUT_MAX - SEEOUT_USER_MAX);
	ck_assert_uint_eq(fill(&seen, SEEOUT_AT_ONCE, 0, 0), SEEOUT_USER_MAX);
	end_many(&seen, &alive, SEEOUT_MAX);
}

TEST(gentle_ones_leave_room)
{
	const unsigned each = SEEOUT_USER_MAX / SEEOUT_GENTLE_PART;
	const unsigned gentle = (SEEOUT_MAX - SEEOUT_USER_MAX) / SEEOUT_GENTLE_PART;
	struct recent seen = {0};
	uv_idle_t alive;

	setup_many(&seen, &alive);
	ck_assert_uint_eq(fill(&seen, SEEOUT_GENTLY, 1000, 0), each);
	ck_assert_uint_eq(fill(&seen, SEEOUT_GENTLY, 1001, each), gentle - each);
	ck_assert_uint_eq(fill(&seen, SEEOUT_AT_ONCE, 1000, 0), SEEOUT_USER_MAX - each);
	ck_assert_uint_eq(fill(&seen, SEEOUT_PATIENTLY, 2000, 0), SEEOUT_USER_MAX);
	end_many(&seen, &alive, gentle + 2 * SEEOUT_USER_MAX - each);
}
