/*
 * An agent: makes the lock calls that a test tells it to, one command a line on standard input, one answer a line
 * on standard output:
 *
 *   open SLOT PATH FLAGS   FLAGS of r, w, rw, dir; c: create         flock SLOT OP...  sh ex un nb in any mix
 *   close SLOT             dup SLOT NEW                              fork              a child that only keeps the
 * descriptors pid                    unlink PATH                               alarm MS          SIGALRM (no
 * SA_RESTART) after MS; 0: none restart MS             the same with SA_RESTART                  children waitpid(-1):
 * ECHILD if there are none seek SLOT OFFSET       size SLOT BYTES   (ftruncate) setlk SLOT sh|ex|un FROM LEN [w] [ofd]
 * [cur|end]     fcntl(F_SETLK); w: F_SETLKW; ofd: F_OFD_SETLK[W]; FROM counts from getlk SLOT sh|ex FROM LEN [ofd]
 * [cur|end]            the start, the offset or the end of the file lockf SLOT lock|tlock|test|ulock LEN
 *
 * An answer is "ok NS" or "ERRNO-NAME NS", NS being CLOCK_MONOTONIC when the call returned; "pid" answers "ok PID";
 * "getlk" answers "un NS" or, if a lock is in the way, "sh:FROM:LEN:PID NS" or "ex:FROM:LEN:PID NS".
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 16
static int slots[SLOTS];

static void answer_word(const char *word)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	printf("%s %lld\n", word, t.tv_sec * 1000000000ll + t.tv_nsec);
	fflush(stdout);
}

static void answer(int ret, int err) { answer_word(ret >= 0 ? "ok" : strerrorname_np(err)); }

static int *slot(const char *word)
{
	int i = word ? atoi(word) : -1;

	if (i < 0 || i >= SLOTS) {
		fprintf(stderr, "agent: no such slot: %s\n", word ? word : "");
		exit(2);
	}
	return &slots[i];
}

static int open_flags(const char *word)
{
	int flags = strstr(word, "rw") ? O_RDWR : strchr(word, 'w') ? O_WRONLY : O_RDONLY;

	if (strcmp(word, "dir") == 0)
		return O_RDONLY | O_DIRECTORY;
	return flags | (strchr(word, 'c') ? O_CREAT : 0);
}

static int flock_op(void)
{
	static const struct {
		const char *name;
		int op;
	} names[] = {{"sh", LOCK_SH}, {"ex", LOCK_EX}, {"un", LOCK_UN}, {"nb", LOCK_NB}};
	int op = 0;
	char *word;

	while ((word = strtok(NULL, " \n")))
		for (int i = 0; i < 4; i++)
			if (strcmp(word, names[i].name) == 0)
				op |= names[i].op;
	return op;
}

static void on_alarm(int sig) {}

static void set_alarm(const char *word, int flags)
{
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = flags};
	long ms = word ? atol(word) : 0;
	struct itimerval timer = {.it_value = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000}};

	sigaction(SIGALRM, &action, NULL);
	answer(setitimer(ITIMER_REAL, &timer, NULL), errno);
}

static char *next_word(void)
{
	char *word = strtok(NULL, " \n");

	return word ? word : (char *)"";
}

/* sh|ex|un FROM LEN [w] [ofd] [cur|end]; the command for F_SETLK, which F_GETLK is made from. */
static struct flock record_lock(bool *wait, bool *ofd)
{
	const char *type = next_word();
	struct flock lock = {.l_type = strcmp(type, "sh") == 0 ? F_RDLCK : strcmp(type, "ex") == 0 ? F_WRLCK : F_UNLCK};

	lock.l_start = strtoll(next_word(), NULL, 10);
	lock.l_len = strtoll(next_word(), NULL, 10);
	*wait = *ofd = false;
	for (const char *word; *(word = next_word());) {
		*wait |= strcmp(word, "w") == 0;
		*ofd |= strcmp(word, "ofd") == 0;
		if (strcmp(word, "cur") == 0 || strcmp(word, "end") == 0)
			lock.l_whence = *word == 'c' ? SEEK_CUR : SEEK_END;
	}
	return lock;
}

static void set_record(int fd)
{
	bool wait, ofd;
	struct flock lock = record_lock(&wait, &ofd);
	int ret = fcntl(fd, ofd ? (wait ? F_OFD_SETLKW : F_OFD_SETLK) : (wait ? F_SETLKW : F_SETLK), &lock);

	answer(ret, errno);
}

static void get_record(int fd)
{
	bool wait, ofd;
	struct flock lock = record_lock(&wait, &ofd);
	char word[128];

	if (fcntl(fd, ofd ? F_OFD_GETLK : F_GETLK, &lock) < 0) {
		answer(-1, errno);
		return;
	}
	snprintf(word, sizeof(word), "%s:%lld:%lld:%d", lock.l_type == F_RDLCK ? "sh" : "ex", (long long)lock.l_start,
		 (long long)lock.l_len, (int)lock.l_pid);
	answer_word(lock.l_type == F_UNLCK ? "un" : word);
}

static void call_lockf(int fd)
{
	const char *what = next_word();
	int cmd = strcmp(what, "lock") == 0    ? F_LOCK
		  : strcmp(what, "tlock") == 0 ? F_TLOCK
		  : strcmp(what, "test") == 0  ? F_TEST
					       : F_ULOCK;
	int ret = lockf(fd, cmd, strtoll(next_word(), NULL, 10));

	answer(ret, errno);
}

static void call_lseek(int fd)
{
	off_t ret = lseek(fd, strtoll(next_word(), NULL, 10), SEEK_SET);

	answer(ret < 0 ? -1 : 0, errno);
}

static void call_ftruncate(int fd)
{
	int ret = ftruncate(fd, strtoll(next_word(), NULL, 10));

	answer(ret, errno);
}

/* false: no such command. */
static bool run_record(const char *word)
{
	static const struct {
		const char *name;
		void (*run)(int fd);
	} commands[] = {{"setlk", set_record},
			{"getlk", get_record},
			{"lockf", call_lockf},
			{"seek", call_lseek},
			{"size", call_ftruncate}};

	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(word, commands[i].name) == 0) {
			commands[i].run(*slot(strtok(NULL, " \n")));
			return true;
		}
	}
	return false;
}

static void run(char *line)
{
	char *word = strtok(line, " \n");
	int ret, *s;

	if (!word)
		return;
	errno = 0;
	if (strcmp(word, "open") == 0) {
		s = slot(strtok(NULL, " \n"));
		word = strtok(NULL, " \n");
		*s = open(word, open_flags(strtok(NULL, " \n")), 0644);
		answer(*s, errno);
	} else if (strcmp(word, "flock") == 0) {
		s = slot(strtok(NULL, " \n"));
		ret = flock(*s, flock_op());
		answer(ret, errno);
	} else if (strcmp(word, "close") == 0) {
		s = slot(strtok(NULL, " \n"));
		ret = close(*s);
		*s = -1;
		answer(ret, errno);
	} else if (strcmp(word, "dup") == 0) {
		s = slot(strtok(NULL, " \n"));
		ret = dup(*s);
		*slot(strtok(NULL, " \n")) = ret;
		answer(ret, errno);
	} else if (strcmp(word, "fork") == 0) {
		/* The child keeps the descriptors, and so the locks, until it is killed. */
		ret = fork();
		if (ret == 0)
			for (;;)
				pause();
		printf("ok %d\n", ret);
		fflush(stdout);
	} else if (strcmp(word, "unlink") == 0) {
		ret = unlink(strtok(NULL, " \n"));
		answer(ret, errno);
	} else if (strcmp(word, "rename") == 0 || strcmp(word, "link") == 0) {
		const char *path = strtok(NULL, " \n"), *name = strtok(NULL, " \n");

		ret = *word == 'r' ? rename(path, name) : link(path, name);
		answer(ret, errno);
	} else if (strcmp(word, "alarm") == 0) {
		set_alarm(strtok(NULL, " \n"), 0);
	} else if (strcmp(word, "restart") == 0) {
		set_alarm(strtok(NULL, " \n"), SA_RESTART);
	} else if (strcmp(word, "children") == 0) {
		ret = waitpid(-1, NULL, WNOHANG);
		answer(ret, errno);
	} else if (strcmp(word, "pid") == 0) {
		printf("ok %d\n", (int)getpid());
		fflush(stdout);
	} else if (!run_record(word)) {
		fprintf(stderr, "agent: no such command: %s\n", word);
		exit(2);
	}
}

int main(void)
{
	char line[4096];

	for (int i = 0; i < SLOTS; i++)
		slots[i] = -1;
	while (fgets(line, sizeof(line), stdin))
		run(line);
	return 0;
}
