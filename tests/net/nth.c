/*
 * Kills a process at its Nth system call, before the kernel executes it: nth DEPTH N PID.
 *
 * DEPTH 0: the process itself; 1: the first child that it makes from now on; 2: the first child of that; and so on. The system calls of all
 * threads of the process count together. It says "ready" when PID is traced, "killed NUMBER" with the number of the system call, and at
 * SIGTERM "counted N" if there were fewer. When it ends, the kernel lets all go that it has traced.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4096
#define OPTIONS (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK)

/* A thread that is traced. */
struct traced {
	pid_t tid, process;
	int depth; /* UNKNOWN: it waits for its parent's event */
};

#define UNKNOWN -1

static struct traced traced[THREADS];
static int target_depth;
static pid_t target;
static volatile long count, wanted;

static void fail(const char *what)
{
	perror(what);
	exit(99);
}

static void end(int sig)
{
	dprintf(1, "counted %ld\n", count);
	_exit(0);
}

static struct traced *find(pid_t tid)
{
	for (int i = 0; i < THREADS; i++)
		if (traced[i].tid == tid)
			return &traced[i];
	return NULL;
}

static struct traced *add(pid_t tid, pid_t process, int how_deep)
{
	struct traced *t = find(0);

	if (!t)
		fail("too many threads");
	if (process <= 0) /* it has ended, and is not one to be killed */
		return t;
	*t = (struct traced){.tid = tid, .process = process, .depth = how_deep};
	if (how_deep == target_depth && !target)
		target = process;
	return t;
}

static pid_t process_of(pid_t tid)
{
	char name[64], line[256];
	pid_t process = -1;
	FILE *f;

	snprintf(name, sizeof(name), "/proc/%d/status", tid);
	f = fopen(name, "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Tgid: %d", &process) == 1)
			break;
	if (f)
		fclose(f);
	return process;
}

static void go_on(const struct traced *t, int sig)
{
	if (t->process != target && t->depth >= target_depth)
		ptrace(PTRACE_DETACH, t->tid, NULL, (void *)(long)sig);
	else
		ptrace(t->process == target ? PTRACE_SYSCALL : PTRACE_CONT, t->tid, NULL, (void *)(long)sig);
}

/* Is it the entry of a system call, and that of the target that was asked for? */
static bool killed(const struct traced *t)
{
	struct __ptrace_syscall_info info = {.op = 0};

	ptrace(PTRACE_GET_SYSCALL_INFO, t->tid, (void *)sizeof(info), &info);
	if (info.op != PTRACE_SYSCALL_INFO_ENTRY || t->process != target || ++count != wanted)
		return false;
	kill(target, SIGKILL);
	dprintf(1, "killed %lld\n", (long long)info.entry.nr);
	return true;
}

/* The event of a parent. The first stop of what it has made may have come before. */
static void made(const struct traced *parent)
{
	unsigned long tid;
	struct traced *t;

	if (ptrace(PTRACE_GETEVENTMSG, parent->tid, NULL, &tid) < 0)
		return;
	t = find((pid_t)tid);
	if (t && t->depth == UNKNOWN) {
		const pid_t process = t->process;

		t->tid = 0;
		t = add((pid_t)tid, process, process == parent->process ? parent->depth : parent->depth + 1);
		go_on(t, 0);
	} else if (!t) {
		const pid_t process = process_of((pid_t)tid);

		add((pid_t)tid, process, process == parent->process ? parent->depth : parent->depth + 1);
	}
}

/* A stop of this thread. False: the target was killed. */
static bool stopped(const struct traced *t, int status)
{
	const int event = status >> 16, sig = WSTOPSIG(status);

	if (sig == (SIGTRAP | 0x80) && killed(t))
		return false;
	if (event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK)
		made(t);
	go_on(t, event || sig == (SIGTRAP | 0x80) ? 0 : sig);
	return true;
}

static void attach(pid_t pid)
{
	char name[64];
	struct dirent *entry;
	DIR *dir;

	snprintf(name, sizeof(name), "/proc/%d/task", pid);
	dir = opendir(name);
	if (!dir)
		fail(name);
	while ((entry = readdir(dir))) {
		const pid_t tid = atoi(entry->d_name);

		if (tid <= 0)
			continue;
		if (ptrace(PTRACE_SEIZE, tid, NULL, (void *)OPTIONS) < 0)
			continue; /* it has ended */
		add(tid, pid, 0);
		ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
	}
	closedir(dir);
	if (!target && target_depth == 0)
		fail("no thread can be traced");
}

static void follow(void)
{
	int status;
	pid_t tid;

	while ((tid = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR) {
		struct traced *t = tid > 0 ? find(tid) : NULL;

		if (tid > 0 && !WIFSTOPPED(status)) {
			if (t)
				t->tid = 0;
		} else if (t && t->depth != UNKNOWN && !stopped(t, status)) {
			return;
		} else if (tid > 0 && !t) {
			add(tid, process_of(tid), UNKNOWN);
		}
	}
}

int main(int argc, char **argv)
{
	const struct sigaction action = {.sa_handler = end};

	if (argc != 4)
		return 99;
	target_depth = atoi(argv[1]);
	wanted = atol(argv[2]);
	sigaction(SIGTERM, &action, NULL);
	attach(atoi(argv[3]));
	dprintf(1, "ready\n");
	follow();
	return 0;
}
