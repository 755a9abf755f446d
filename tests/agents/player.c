/*
 * A player: one process of the model test (tests/model), which drives many. It connects to the socket (SOCK_SEQPACKET)
 * that its argument names, and says "hello PID"; a child that it forks does the same. Each packet is a command, and has
 * one packet as its answer:
 *
 *   open SLOT PATH FLAGS   FLAGS of r, w, rw; e: O_CLOEXEC; "ok FD"      close SLOT    dup SLOT NEW ("ok FD")
 *   fork ("ok PID")        exec: runs itself anew; the slots stay        reset: closes all slots
 *   seek SLOT OFFSET       flock SLOT sh|ex|un [nb]                      lockf SLOT lock|tlock|test|ulock LEN
 *   set SLOT sh|ex|un FROM LEN [w] [ofd] [cur|end]    fcntl(F_SETLK), F_SETLKW, F_OFD_SETLK[W]
 *   get SLOT sh|ex|un FROM LEN [ofd] [cur|end]        "sh|ex|un FROM LEN WHENCE": what F_GETLK wrote, without l_pid
 *   look PID:FD,FD,... PID:FD,...                     "ok", then a line "PID FD KIND MODE FIRST LAST" for each lock
 *
 * Other answers are "ok" or the name of an errno. SIGUSR1 interrupts a call that waits.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SLOTS 16

static int slots[SLOTS];
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

static const char *next(void)
{
	const char *word = strtok(NULL, " ");

	return word ? word : "";
}

static int *slot(void)
{
	const char *word = next();
	int i = *word ? atoi(word) : -1;

	if (i < 0 || i >= SLOTS) {
		errno = EINVAL;
		die("no such slot");
	}
	return &slots[i];
}

/* --- descriptors --- */

static void call_open(void)
{
	int *s = slot();
	const char *path = next(), *flags = next();
	int mode = strstr(flags, "rw") ? O_RDWR : strchr(flags, 'w') ? O_WRONLY : O_RDONLY;

	*s = open(path, mode | (strchr(flags, 'e') ? O_CLOEXEC : 0));
	answer_number(*s);
}

static void call_close(void)
{
	int *s = slot(), ret = close(*s);

	*s = -1;
	answer(ret);
}

static void call_dup(void)
{
	int from = *slot(), *to = slot();

	*to = dup(from);
	answer_number(*to);
}

static void call_seek(void)
{
	int fd = *slot();

	answer(lseek(fd, strtoll(next(), NULL, 10), SEEK_SET) < 0 ? -1 : 0);
}

static void call_reset(void)
{
	for (int i = 0; i < SLOTS; i++) {
		if (slots[i] >= 0)
			close(slots[i]);
		slots[i] = -1;
	}
	say("ok");
}

/* --- processes --- */

static void call_fork(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		close(driver);
		say_hello();
		return;
	}
	answer_number(pid);
}

static void call_exec(void)
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

static void call_flock(void)
{
	int fd = *slot();
	const char *op = next();

	answer(flock(fd, (strcmp(op, "sh") == 0   ? LOCK_SH
			  : strcmp(op, "ex") == 0 ? LOCK_EX
						  : LOCK_UN) |
				 (*next() ? LOCK_NB : 0)));
}

static void call_lockf(void)
{
	int fd = *slot();
	const char *op = next();
	int cmd = strcmp(op, "lock") == 0    ? F_LOCK
		  : strcmp(op, "tlock") == 0 ? F_TLOCK
		  : strcmp(op, "test") == 0  ? F_TEST
					     : F_ULOCK;

	answer(lockf(fd, cmd, strtoll(next(), NULL, 10)));
}

static struct flock record(bool *wait, bool *ofd)
{
	const char *type = next();
	struct flock lock = {.l_type = strcmp(type, "sh") == 0 ? F_RDLCK : strcmp(type, "ex") == 0 ? F_WRLCK : F_UNLCK};

	lock.l_start = strtoll(next(), NULL, 10);
	lock.l_len = strtoll(next(), NULL, 10);
	*wait = *ofd = false;
	for (const char *word = next(); *word; word = next()) {
		*wait |= strcmp(word, "w") == 0;
		*ofd |= strcmp(word, "ofd") == 0;
		if (strcmp(word, "cur") == 0)
			lock.l_whence = SEEK_CUR;
		else if (strcmp(word, "end") == 0)
			lock.l_whence = SEEK_END;
	}
	return lock;
}

static void call_set(void)
{
	int fd = *slot();
	bool wait, ofd;
	struct flock lock = record(&wait, &ofd);

	answer(fcntl(fd, ofd ? (wait ? F_OFD_SETLKW : F_OFD_SETLK) : (wait ? F_SETLKW : F_SETLK), &lock));
}

static void call_get(void)
{
	int fd = *slot();
	bool wait, ofd;
	struct flock lock = record(&wait, &ofd);
	int ret = fcntl(fd, ofd ? F_OFD_GETLK : F_GETLK, &lock);

	if (ret < 0)
		answer(ret);
	else
		say("%s %lld %lld %d",
		    lock.l_type == F_RDLCK   ? "sh"
		    : lock.l_type == F_WRLCK ? "ex"
					     : "un",
		    (long long)lock.l_start, (long long)lock.l_len, lock.l_whence);
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

static void call_look(void)
{
	char *text = NULL, *rest_of_fds;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	fputs("ok", out);
	for (const char *word = next(); *word; word = next()) {
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
	} calls[] = {{"open", call_open},   {"close", call_close}, {"dup", call_dup},   {"seek", call_seek},
		     {"reset", call_reset}, {"fork", call_fork},   {"exec", call_exec}, {"flock", call_flock},
		     {"lockf", call_lockf}, {"set", call_set},     {"get", call_get},   {"look", call_look}};
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
