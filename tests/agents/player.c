/*
 * A player: one process of the model test (tests/model), which drives many. It connects to the socket (SOCK_SEQPACKET)
 * that its argument names, and says "hello PID"; a child that it forks does the same. Each packet is a command, and has
 * one packet as its answer:
 *
 *   open SLOT ... ("ok FD")  close SLOT   dup SLOT NEW ("ok FD")   seek SLOT OFFSET   flock SLOT ...   lockf SLOT ...   set SLOT ...
 *   get SLOT ...: "sh|ex|un FROM LEN WHENCE": what F_GETLK wrote, without l_pid; what follows a SLOT: words.h
 *   fork ("ok PID")          exec: runs itself anew; the slots stay   reset: closes all slots
 *   look PID:FD,FD,... PID:FD,...                     "ok", then a line "PID FD KIND MODE FIRST LAST" for each lock
 *
 * Other answers are "ok" or the name of an errno. SIGUSR1 interrupts a call that waits.
 */
#include <signal.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/agents/words.h"

static int driver;
static const char *socket_path;

static void die(const char *what)
{
	fprintf(stderr, "player: %s: %s\n", what, strerror(errno));
	exit(2);
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	char text[256];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (send(driver, text, (size_t)n, MSG_NOSIGNAL) != n)
		exit(0); /* the driver has ended */
}

static void answer(int ret) { say("%s", ret >= 0 ? "ok" : strerrorname_np(errno)); }

static void answer_number(int ret)
{
	if (ret < 0)
		answer(ret);
	else
		say("ok %d", ret);
}

static void say_hello(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", socket_path);
	driver = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	if (driver < 0 || connect(driver, (struct sockaddr *)&address, sizeof(address)) != 0)
		die(socket_path);
	say("hello %d", (int)getpid());
}

/* --- descriptors --- */

static void do_open(void)
{
	int *slot = next_slot();

	*slot = call_open();
	answer_number(*slot);
}

static void do_close(void)
{
	int *slot = next_slot(), ret = close(*slot);

	*slot = -1;
	answer(ret);
}

static void do_dup(void)
{
	int from = *next_slot(), *to = next_slot();

	*to = dup(from);
	answer_number(*to);
}

static void do_seek(void) { answer(call_seek(*next_slot())); }

static void do_reset(void)
{
	for (int i = 0; i < SLOTS; i++) {
		if (slots[i] >= 0)
			close(slots[i]);
		slots[i] = -1;
	}
	say("ok");
}

/* --- processes --- */

static void do_fork(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		close(driver);
		say_hello();
		return;
	}
	answer_number(pid);
}

static void do_exec(void)
{
	char numbers[SLOTS + 1][12], *args[SLOTS + 4] = {"player", (char *)socket_path};

	for (int i = 0; i < SLOTS; i++) {
		snprintf(numbers[i], sizeof(numbers[i]), "%d", slots[i]);
		args[i + 2] = numbers[i];
	}
	snprintf(numbers[SLOTS], sizeof(numbers[SLOTS]), "%d", driver);
	args[SLOTS + 2] = numbers[SLOTS];
	execv("/proc/self/exe", args);
	die("exec");
}

static void resume(char **numbers)
{
	for (int i = 0; i < SLOTS; i++) {
		slots[i] = atoi(numbers[i]);
		if (slots[i] >= 0 && fcntl(slots[i], F_GETFD) < 0)
			slots[i] = -1; /* O_CLOEXEC */
	}
	driver = atoi(numbers[SLOTS]);
	say("ok");
}

/* --- locks --- */

static void do_flock(void) { answer(call_flock(*next_slot())); }
static void do_lockf(void) { answer(call_lockf(*next_slot())); }
static void do_set(void) { answer(set_record(*next_slot())); }

static void do_get(void)
{
	struct flock lock;
	int ret = get_record(*next_slot(), &lock);

	if (ret < 0)
		answer(ret);
	else
		say("%s %lld %lld %d", mode_of(&lock), (long long)lock.l_start, (long long)lock.l_len, lock.l_whence);
}

/* --- what each process holds --- */

static void look_at(FILE *out, const char *pid, const char *fd)
{
	char path[64], line[256], kind[16], mode[16], first[24], last[24];
	FILE *info;

	snprintf(path, sizeof(path), "/proc/%s/fdinfo/%s", pid, fd);
	info = fopen(path, "re");
	while (info && fgets(line, sizeof(line), info))
		if (sscanf(line, "lock: %*[0-9]: %15s %*s %15s %*s %*s %23s %23s", kind, mode, first, last) == 4)
			fprintf(out, "\n%s %s %s %s %s %s", pid, fd, kind, mode, first, last);
	if (info)
		fclose(info);
}

static void do_look(void)
{
	char *text = NULL, *rest_of_fds;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	fputs("ok", out);
	for (const char *word = next_word(); *word; word = next_word()) {
		char *fds = strchr(word, ':');

		*fds = '\0';
		for (char *fd = strtok_r(fds + 1, ",", &rest_of_fds); fd; fd = strtok_r(NULL, ",", &rest_of_fds))
			look_at(out, word, fd);
	}
	fclose(out);
	if (send(driver, text, size, MSG_NOSIGNAL) != (ssize_t)size)
		die("look");
	free(text);
}

/* --- */

static void play(char *command)
{
	static const struct {
		const char *name;
		void (*call)(void);
	} calls[] = {{"open", do_open},   {"close", do_close}, {"dup", do_dup},   {"seek", do_seek},
		     {"reset", do_reset}, {"fork", do_fork},   {"exec", do_exec}, {"flock", do_flock},
		     {"lockf", do_lockf}, {"set", do_set},     {"get", do_get},   {"look", do_look}};
	const char *word = strtok(command, " ");

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (strcmp(word, calls[i].name) == 0) {
			calls[i].call();
			return;
		}
	}
	errno = ENOSYS;
	die(word);
}

static void on_interrupt(int sig) {}

int main(int argc, char **argv)
{
	struct sigaction interrupt = {.sa_handler = on_interrupt}; /* no SA_RESTART */
	static char command[65536];
	ssize_t n;

	socket_path = argv[1];
	sigaction(SIGUSR1, &interrupt, NULL);
	signal(SIGCHLD, SIG_IGN);
	if (argc == SLOTS + 3) {
		resume(argv + 2);
	} else {
		memset(slots, -1, sizeof(slots));
		say_hello();
	}
	for (;;) {
		n = recv(driver, command, sizeof(command) - 1, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return 0;
		command[n] = '\0';
		play(command);
	}
}
