/* For which threads a peer may ask, and as which user. */
#include "keeper/kernel/onbehalf.h"

#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "keeper/kernel/family.h"
#include "keeper/kernel/overflowuid.h"
#include "tests/unit/suite.h"

/* A process of this user; it ends with its input. */
static pid_t start(uid_t real, uid_t effective, uid_t saved)
{
	pid_t pid = suite_fork();

	if (pid == 0) {
		if (setresuid(real, effective, saved) != 0)
			_exit(1);
		suite_rest();
	}
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static int look(uid_t uid, pid_t thread, struct onbehalf *out)
{
	const struct ucred peer = {.pid = getpid(), .uid = uid, .gid = 0};

	return onbehalf_look(&peer, thread, out);
}

static void *tell_thread(void *arg)
{
	*(pid_t *)arg = gettid();
	for (;;)
		pause();
	return NULL;
}

TEST(a_thread_belongs_to_its_process)
{
	struct onbehalf who;
	pthread_t thread;
	volatile pid_t tid = 0;

	ck_assert_int_eq(pthread_create(&thread, NULL, tell_thread, (void *)&tid), 0);
	while (!tid)
		sched_yield();
	ck_assert_int_eq(look(getuid(), tid, &who), 0);
	ck_assert_int_eq(who.thread, tid);
	ck_assert_int_eq(who.pid, getpid());
	ck_assert_uint_eq(who.started, family_started(tid));
	pthread_cancel(thread);
	pthread_join(thread, NULL);
}

TEST(root_may_ask_for_all)
{
	struct onbehalf who;
	pid_t pid;

	if (getuid() != 0)
		return;
	pid = start(1000, 1000, 1000);
	ck_assert_int_eq(look(0, pid, &who), 0);
	ck_assert_int_eq(who.pid, pid);
	ck_assert_uint_eq(who.uid, 1000);
	end(pid);
}

/* Each of the four numbers must be the peer's: a setuid program is not the user's to speak for. */
TEST(a_user_may_ask_for_its_own)
{
	static const uid_t uids[][3] = {
		{1000, 1000, 1000}, {1001, 1000, 1000}, {1000, 1001, 1000}, {1000, 1000, 1001}, {0, 1000, 1000}};
	struct onbehalf who;

	for (int i = 0; i < ROWS(uids) && getuid() == 0; i++) {
		pid_t pid = start(uids[i][0], uids[i][1], uids[i][2]);

		ck_assert_int_eq(look(1000, pid, &who), i ? -EPERM : 0);
		ck_assert_int_eq(look(1001, pid, &who), -EPERM);
		end(pid);
	}
}

TEST(there_is_no_such_thread)
{
	struct onbehalf who;
	pid_t pid = start(getuid(), getuid(), getuid());

	end(pid);
	ck_assert_int_eq(look(getuid(), pid, &who), -ESRCH);
	ck_assert_int_eq(look(getuid(), 0x7fffffff, &who), -ESRCH);
}

/* A name with line feeds makes up no line of /proc/TID/status. */
TEST(a_name_that_lies)
{
	struct onbehalf who;
	char before[16];

	prctl(PR_GET_NAME, before);
	prctl(PR_SET_NAME, "\nTgid:\t1\nUid:\t");
	ck_assert_int_eq(look(getuid(), getpid(), &who), 0);
	ck_assert_int_eq(who.pid, getpid());
	prctl(PR_SET_NAME, before);
}

/*
 * The peer's numbers are others: whom it means cannot be known. The keeper may also be an ordinary user's that may not look into the
 * peer, another user's. The line that tells follows that of the groups, which may be long.
 */
TEST(in_another_pid_namespace)
{
	struct ucred there = {.uid = 0};
	gid_t groups[1000];
	struct onbehalf who;
	int ready[2], status;
	pid_t maker, looker;

	if (getuid() != 0)
		return;
	ck_assert_int_eq(pipe(ready), 0);
	maker = fork();
	if (maker == 0) {
		pid_t pid;

		for (int i = 0; i < ROWS(groups); i++)
			groups[i] = 4000000000u + (gid_t)i;
		pid = setgroups(ROWS(groups), groups) == 0 && unshare(CLONE_NEWPID) == 0 ? fork() : -1;

		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
		_exit(write(ready[1], &pid, sizeof(pid)) == sizeof(pid) && pause());
	}
	ck_assert_int_eq(read(ready[0], &there.pid, sizeof(there.pid)), sizeof(there.pid));
	ck_assert_int_eq(look(0, getpid(), &who), 0); /* the parent itself is still in ours; its child is not */
	ck_assert_int_eq(onbehalf_look(&there, getpid(), &who), -EXDEV);
	looker = fork();
	if (looker == 0)
		_exit(setresuid(1000, 1000, 1000) == 0 && onbehalf_look(&there, getpid(), &who) == -EXDEV ? 0 : 1);
	ck_assert_int_eq(waitpid(looker, &status, 0), looker);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	kill(there.pid, SIGKILL);
	close(ready[0]);
	close(ready[1]);
	end(maker);
}

/* That says nothing of the peer, and is over when descriptors are closed. */
TEST(without_a_free_descriptor)
{
	struct rlimit limit;
	struct onbehalf who;
	rlim_t before;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	before = limit.rlim_cur;
	limit.rlim_cur = 0;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(look(getuid(), getpid(), &who), -EMFILE);
	limit.rlim_cur = before;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(look(getuid(), getpid(), &who), 0);
}

TEST(which_maps_are_whole)
{
	/* The initial namespace; the same in parts; `unshare -Ur`; a container's; one that leaves out a single uid. */
	ck_assert(overflowuid_maps_all("         0          0 4294967295\n"));
	ck_assert(overflowuid_maps_all("0 0 65536\n65536 65536 4294901759\n"));
	ck_assert(!overflowuid_maps_all("         0       1000          1\n"));
	ck_assert(!overflowuid_maps_all("0 100000 65536\n"));
	ck_assert(!overflowuid_maps_all("0 0 4294967294\n"));
	ck_assert(!overflowuid_maps_all(""));
	ck_assert(!overflowuid_maps_all("nonsense"));
}
