/*
 * jumps HOW LOCK OTHER: waits for LOCK until SIGALRM, whose handler jumps out of the call, and then:
 *   same       locks OTHER, from the same depth
 *   deeper     from further down the stack
 *   unlock     unlocks OTHER
 *   record     waited with fcntl(); unlocks a range of OTHER
 *   beside     the same, beside another thread
 *   exit       another thread waits, and the handler ends it; unlocks OTHER
 *   fork       another thread waits, and at SIGALRM a child unlocks OTHER
 *   alternate  the handler ran on an alternate stack; locks OTHER
 * Or the handler does not jump:
 *   nested     it locks OTHER, and returns: the wait goes on
 *   nested-alternate   the same, on an alternate stack
 * Or something of the program's gets the number of the conversation's descriptor, 5: KIND is "epoll", "timer" or "socket":
 *   closed-KIND  after the jump; then it unlocks OTHER
 *   thread-KIND  another thread does that, when it gets the signal, while the call waits
 * Prints which descriptors are open, before and after; ends with its standard input.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "tests/interpose/calls.h"

static sigjmp_buf out;
static const char *how;
static int lock, other;
static sigset_t alarm_only;

/* Is `how` one of these, or does it begin with it? */
#define IS(...) is((const char *[]){__VA_ARGS__, NULL})
static bool is(const char **names)
{
	while (*names && strncmp(how, *names, strlen(*names)) != 0)
		names++;
	return *names;
}

static __attribute__((noinline)) void lock_deeper(int depth)
{
	volatile char room[4096];

	memset((void *)room, depth, sizeof(room));
	if (depth)
		lock_deeper(depth - 1);
	else
		CALL("other", flock(other, LOCK_EX));
	room[0] = room[1];
}

static void on_alarm(int number)
{
	if (IS("exit"))
		pthread_exit(NULL);
	if (!IS("nested"))
		siglongjmp(out, 1);
	CALL("other", flock(other, LOCK_EX));
	print_descriptors();
}

/* As daemons do: closes all, and opens its own. */
static void use_its_number(void)
{
	const struct itimerspec second = {.it_interval.tv_sec = 1, .it_value.tv_sec = 1};
	int fd;

	close(5);
	fd = strstr(how, "epoll")   ? epoll_create1(0)
	     : strstr(how, "timer") ? timerfd_create(CLOCK_MONOTONIC, 0)
				    : socket(AF_UNIX, SOCK_SEQPACKET, 0);
	if (strstr(how, "timer"))
		timerfd_settime(fd, 0, &second, NULL);
	printf("the program's: %d\n", fd);
	fflush(stdout);
}

static void wait_for_lock(void)
{
	struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};

	CALL("lock", IS("record", "beside") ? fcntl(lock, F_SETLKW, &range) : flock(lock, LOCK_EX));
}

static void call_again(void)
{
	struct flock range = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_len = 10};

	if (IS("deeper"))
		lock_deeper(4);
	else if (IS("record", "beside"))
		CALL("other", fcntl(other, F_SETLK, &range));
	else
		CALL("other", flock(other, IS("unlock", "exit", "fork", "closed") ? LOCK_UN : LOCK_EX));
}

/* The thread that waits for the lock; that takes its number; that does nothing. */
static void *thread(void *arg)
{
	int number;

	if (IS("exit"))
		pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
	if (IS("exit", "fork"))
		wait_for_lock();
	else if (IS("thread") && sigwait(&alarm_only, &number) == 0)
		use_its_number();
	while (IS("beside"))
		pause();
	return arg;
}

int main(int argc, char **argv)
{
	static char stack[1 << 16];
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	pthread_t beside;
	int number;

	if (argc != 4)
		return 2;
	how = argv[1];
	if (strstr(how, "alternate")) {
		action.sa_flags |= SA_ONSTACK;
		sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof(stack)}, NULL);
	}
	sigaction(SIGALRM, &action, NULL);
	lock = must_open(argv[2], O_RDWR | O_CREAT);
	other = must_open(argv[3], O_RDWR | O_CREAT);
	sigaddset(&alarm_only, SIGALRM);
	if (IS("thread", "beside", "exit", "fork")) {
		sigprocmask(SIG_BLOCK, &alarm_only, NULL);
		pthread_create(&beside, NULL, thread, NULL);
	}
	if (IS("beside"))
		sigprocmask(SIG_UNBLOCK, &alarm_only, NULL);
	if (IS("fork")) {
		sigwait(&alarm_only, &number);
		if (fork() == 0) {
			call_again();
			_exit(0);
		}
		wait(NULL);
		pthread_join(beside, NULL);
	} else if (IS("exit")) {
		pthread_join(beside, NULL);
		print_descriptors();
		call_again();
	} else if (sigsetjmp(out, 1) == 0) {
		wait_for_lock();
	} else {
		print_descriptors();
		if (IS("closed"))
			use_its_number();
		call_again();
	}
	print_descriptors();
	while (getchar() != EOF)
		;
	return 0;
}
