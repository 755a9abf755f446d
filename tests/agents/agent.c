/*
 * An agent: makes the calls that a test tells it to, one command a line on standard input, one answer a line on standard output. What
 * follows a SLOT, the number of a descriptor: words.h.
 *
 *   open SLOT ...   flock SLOT ...   setlk SLOT ...   getlk SLOT ...   lockf SLOT ...   seek SLOT OFFSET
 *   close SLOT   dup SLOT NEW   size SLOT BYTES (ftruncate)   unlink PATH   rename PATH NEW   link PATH NEW
 *   listen PATH     the socket is there   send SLOT PATH  the descriptor is in the socket, whether or not it was received
 *   receive SLOT    by the listener
 *   fork            a child that only keeps the descriptors       children   waitpid(-1): ECHILD if there are none
 *   alarm MS        SIGALRM (no SA_RESTART) after MS, and again until the next call ends; 0: none
 *   restart MS      the same with SA_RESTART       pid
 *
 * An answer is "ok NS" or "ERRNO-NAME NS", NS being CLOCK_MONOTONIC when the call returned; "pid" and "fork" answer "ok PID";
 * "getlk" answers "un NS" or, if a lock is in the way, "sh:FROM:LEN:PID NS" or "ex:FROM:LEN:PID NS".
 */
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/agents/words.h"

static int listening = -1;

static void answer_word(const char *word)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	printf("%s %lld\n", word, t.tv_sec * 1000000000ll + t.tv_nsec);
	fflush(stdout);
}

static void answer(int ret, int err) { answer_word(ret >= 0 ? "ok" : strerrorname_np(err)); }

static void answer_pid(int pid)
{
	printf("ok %d\n", pid);
	fflush(stdout);
}

/* --- of a slot --- */

static int do_open(int *slot) { return *slot = call_open(); }

static int do_close(int *slot)
{
	int ret = close(*slot);

	*slot = -1;
	return ret;
}

static int do_dup(int *slot)
{
	int ret = dup(*slot);

	return *next_slot() = ret;
}

static int do_flock(int *slot) { return call_flock(*slot); }
static int do_setlk(int *slot) { return set_record(*slot); }
static int do_lockf(int *slot) { return call_lockf(*slot); }
static int do_seek(int *slot) { return call_seek(*slot); }
static int do_size(int *slot) { return ftruncate(*slot, strtoll(next_word(), NULL, 10)); }

/* Sends the descriptor, or receives it. */
static int pass(int sock, int *slot, bool sends)
{
	char byte = 'x';
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.head = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))}};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	ssize_t n;

	memcpy(CMSG_DATA(&control.head), slot, sizeof(*slot));
	n = sends ? sendmsg(sock, &msg, 0) : recvmsg(sock, &msg, 0);
	memcpy(slot, CMSG_DATA(&control.head), sizeof(*slot));
	return n == 1 ? 0 : -1;
}

static int at_socket(int (*what)(int, const struct sockaddr *, socklen_t))
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", next_word());
	return what(fd, (struct sockaddr *)&address, sizeof(address)) == 0 ? fd : -1;
}

static int do_send(int *slot) { return pass(at_socket(connect), slot, true); }
static int do_receive(int *slot) { return pass(accept(listening, NULL, NULL), slot, false); }

static const struct {
	const char *name;
	int (*run)(int *slot);
} commands[] = {{"open", do_open},   {"close", do_close},    {"dup", do_dup},   {"flock", do_flock},
		{"setlk", do_setlk}, {"lockf", do_lockf},    {"seek", do_seek}, {"size", do_size},
		{"send", do_send},   {"receive", do_receive}};

static void do_getlk(void)
{
	struct flock lock;
	char word[128];

	if (get_record(*next_slot(), &lock) < 0) {
		answer(-1, errno);
		return;
	}
	snprintf(word, sizeof(word), "%s:%lld:%lld:%d", mode_of(&lock), (long long)lock.l_start, (long long)lock.l_len,
		 (int)lock.l_pid);
	answer_word(lock.l_type == F_UNLCK ? "un" : word);
}

/* --- others --- */

#define ALARM_AGAIN_MS 100

static int set_timer(long ms)
{
	struct itimerval timer = {.it_value = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000}};

	return setitimer(ITIMER_REAL, &timer, NULL);
}

/* The call that it is for may not have begun. */
static void on_alarm(int sig) { set_timer(ALARM_AGAIN_MS); }

/* Only calls are to be interrupted. */
static void hear_alarm(int how)
{
	sigset_t alarm;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigprocmask(how, &alarm, NULL);
}

static int set_alarm(int flags)
{
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};

	sigaction(SIGALRM, &action, NULL);
	return set_timer(atol(next_word()));
}

/* The child keeps the descriptors, and so the locks, until it is killed. */
static int fork_keeping(void)
{
	int pid = fork();

	while (pid == 0)
		pause();
	return pid;
}

static int run_other(const char *word)
{
	const char *path;

	if (strcmp(word, "unlink") == 0)
		return unlink(next_word());
	if (strcmp(word, "alarm") == 0 || strcmp(word, "restart") == 0)
		return set_alarm(*word == 'r' ? SA_RESTART : 0);
	if (strcmp(word, "children") == 0)
		return waitpid(-1, NULL, WNOHANG);
	if (strcmp(word, "listen") == 0)
		return listen(listening = at_socket(bind), 1);
	if (strcmp(word, "rename") == 0 || strcmp(word, "link") == 0) {
		path = next_word();
		return *word == 'r' ? rename(path, next_word()) : link(path, next_word());
	}
	fprintf(stderr, "agent: no such command: %s\n", word);
	exit(2);
}

static void run(char *line)
{
	const char *word = strtok(line, " \n");
	int ret, error;

	if (!word)
		return;
	errno = 0;
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(word, commands[i].name) == 0) {
			hear_alarm(SIG_UNBLOCK);
			ret = commands[i].run(next_slot());
			error = errno;
			hear_alarm(SIG_BLOCK);
			set_timer(0);
			answer(ret, error);
			return;
		}
	}
	if (strcmp(word, "getlk") == 0) {
		do_getlk();
	} else if (strcmp(word, "pid") == 0 || strcmp(word, "fork") == 0) {
		answer_pid(*word == 'p' ? (int)getpid() : fork_keeping());
	} else {
		ret = run_other(word);
		answer(ret, errno);
	}
}

int main(void)
{
	char line[4096];

	memset(slots, -1, sizeof(slots));
	hear_alarm(SIG_BLOCK);
	while (fgets(line, sizeof(line), stdin))
		run(line);
	return 0;
}
