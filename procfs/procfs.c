/* See procfs.h. */
#include "procfs/procfs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "wire/sys.h"
#include "wire/text.h"

#define LEFT_PRELOAD "DFLOCK_LEFT_PRELOAD" /* from the first program to the one without a preload */

static int procfs_say(char *why, size_t size, int ret, const char *line)
{
	text_print(why, size, "%s", line);
	return ret;
}

/*
 * Compares /proc/self with our pid. Since the two could be equal by chance, also looks at NSpid, which lists the
 * numbers of this process in each namespace from that of /proc inwards: in the right /proc there is only one. (A kernel
 * without pid namespaces has no such line.)
 */
static bool procfs_is_ours(const char *self)
{
	struct procfs_status status;
	char number[16];

	snprintf(number, sizeof(number), "%d", (int)getpid());
	return strcmp(self, number) == 0 && procfs_status_read(getpid(), &status) && status.numbers <= 1;
}

int procfs_check(char *why, size_t why_size)
{
	char self[32], some[64];
	ssize_t n = readlink("/proc/self", self, sizeof(self) - 1);

	if (n < 0)
		return procfs_say(
			why, why_size, -ENOENT,
			"/proc does not show this process, and a keeper finds there who holds a lock: mount one "
			"(mount -t proc proc /proc), or start dflockd where there is one");
	self[n] = '\0';
	if (!procfs_is_ours(self))
		return procfs_say(
			why, why_size, -EXDEV,
			"/proc is that of another pid namespace, and a keeper would stop the wrong processes by "
			"its numbers: give this namespace a /proc of its own (unshare --mount-proc), or start "
			"dflockd outside");
	n = procfs_head(AT_FDCWD, "/proc/locks", some, sizeof(some));
	if (n < 0)
		return procfs_say(
			why, why_size, (int)n,
			"/proc/locks cannot be read, and a keeper finds there the locks that no descriptor shows: "
			"mount /proc without subset=pid");
	return 0;
}

#define FIRST_PID_NAMESPACE 0xeffffffcu /* inode number in nsfs: the same on every machine */

bool procfs_is_in_first_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == FIRST_PID_NAMESPACE;
}

void procfs_be_oneself(char **argv, bool for_children)
{
	const char *left = secure_getenv(LEFT_PRELOAD), *preload = getenv("LD_PRELOAD");

	if (left) {
		prctl(PR_SET_NAME, program_invocation_short_name); /* else "exe" */
		if (for_children)
			setenv("LD_PRELOAD", left, 1);
		unsetenv(LEFT_PRELOAD);
	}
	if (geteuid() == sys_geteuid())
		return;
	if (!left && preload && setenv(LEFT_PRELOAD, preload, 1) == 0 && unsetenv("LD_PRELOAD") == 0)
		execv("/proc/self/exe", argv);
	fprintf(stderr,
		"%s: a library tells this process that its user is %u, and it is %u (fakeroot?): start it without that library\n",
		program_invocation_short_name, (unsigned)geteuid(), (unsigned)sys_geteuid());
	exit(EXIT_FAILURE);
}

#define FIRST_ROOM 16384

/* --- texts --- */

/* Room for one more byte, and the NUL. */
static int procfs_make_room(struct procfs_text *t)
{
	size_t room = t->room ? 2 * t->room : FIRST_ROOM;
	char *text;

	if (t->room > t->len + 1)
		return 0;
	text = realloc(t->text, room);
	if (!text)
		return -ENOMEM;
	t->text = text;
	t->room = room;
	return 0;
}

int procfs_read(int dirfd, const char *name, struct procfs_text *into)
{
	int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC), ret;

	if (fd < 0)
		return -errno;
	into->len = 0;
	for (;;) {
		size_t free_bytes;
		ssize_t n;

		ret = procfs_make_room(into);
		if (ret < 0)
			break;
		free_bytes = into->room - into->len - 1;
		n = read(fd, into->text + into->len, free_bytes);
		if (n < 0)
			ret = -errno;
		if (n <= 0)
			break;
		into->len += (size_t)n;
		if ((size_t)n < free_bytes)
			break; /* one piece: there is no more */
	}
	if (into->text)
		into->text[into->len] = '\0';
	close(fd);
	return ret;
}

void procfs_free(struct procfs_text *text)
{
	free(text->text);
	*text = (struct procfs_text){0};
}

ssize_t procfs_head(int dirfd, const char *name, char *text, size_t size)
{
	int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	*text = '\0';
	if (fd < 0)
		return -errno;
	n = read(fd, text, size - 1);
	if (n < 0)
		n = -errno;
	text[n > 0 ? n : 0] = '\0';
	close(fd);
	return n;
}

/* --- walks --- */

int procfs_walk(struct procfs_walk *walk, int dirfd, const char *name)
{
	walk->fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	walk->at = walk->next = walk->len = 0;
	return walk->fd < 0 ? -errno : 0;
}

int procfs_next(struct procfs_walk *walk)
{
	for (;;) {
		const struct sys_dirent *entry;

		if (walk->next >= walk->len) {
			walk->len = syscall(SYS_getdents64, walk->fd, walk->entries, sizeof(walk->entries));
			walk->next = 0;
		}
		if (walk->len <= 0)
			return -1;
		entry = (const struct sys_dirent *)(walk->entries + walk->next);
		walk->next += entry->length;
		walk->at = (long)entry->off;
		/* The kernel's numbers are no larger than an int; "self" and "irq" begin with a letter. */
		if (isdigit((unsigned char)entry->name[0]))
			return (int)strtol(entry->name, NULL, 10);
	}
}

int procfs_walk_fd(const struct procfs_walk *walk)
{
	return walk->fd;
}

long procfs_walk_at(const struct procfs_walk *walk)
{
	return walk->at;
}

void procfs_walk_to(struct procfs_walk *walk, long at)
{
	walk->next = walk->len = 0;
	lseek(walk->fd, at, SEEK_SET);
}

void procfs_walk_end(struct procfs_walk *walk)
{
	if (walk->fd >= 0)
		close(walk->fd);
	walk->fd = -1;
}

/* One call: an entry of a number of up to 12 digits takes at most 32 bytes here. */
static bool procfs_lists_few(const char *path)
{
	_Alignas(struct sys_dirent) char entries[PROCFS_FEW * 32 + 1024];
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	unsigned count = 0;
	long bytes;

	if (fd < 0)
		return true;
	bytes = syscall(SYS_getdents64, fd, entries, sizeof(entries));
	close(fd);
	for (long at = 0; at < bytes; count++)
		at += ((const struct sys_dirent *)(entries + at))->length;
	return count <= PROCFS_FEW;
}

bool procfs_shares_table(pid_t pid, pid_t tid)
{
	return tid == pid || syscall(SYS_kcmp, pid, tid, KCMP_FILES, 0, 0) == 0;
}

static bool procfs_has_one_table(const char *tasks, pid_t pid)
{
	struct procfs_walk walk;
	bool one = true;
	int tid;

	if (procfs_walk(&walk, AT_FDCWD, tasks) == 0)
		while (one && (tid = procfs_next(&walk)) >= 0)
			one = procfs_shares_table(pid, tid);
	procfs_walk_end(&walk);
	return one;
}

bool procfs_has_few(pid_t pid)
{
	struct stat fds, tasks;
	char path[32], task[32];

	snprintf(task, sizeof(task), "/proc/%d/task", (int)pid);
	if (stat(task, &tasks) != 0)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	if (stat(path, &fds) != 0)
		return true;
	/* Before Linux 6.2 the size of /proc/PID/fd is 0. */
	return tasks.st_nlink <= PROCFS_FEW && (fds.st_size ? fds.st_size <= PROCFS_FEW : procfs_lists_few(path)) &&
	       procfs_has_one_table(task, pid);
}

bool procfs_is_deleted(const char *path, size_t *before)
{
	static const char deleted[] = " (deleted)";
	size_t len = strlen(path), cut = strlen(deleted);

	*before = len > cut && strcmp(path + len - cut, deleted) == 0 ? len - cut : len;
	return *before < len;
}

enum procfs_kind procfs_kind(int fds, int number)
{
	static const struct {
		const char *prefix;
		enum procfs_kind kind;
	} kinds[] = {{"socket:", PROCFS_SOCKET}, {"pipe:", PROCFS_PIPE}, {"anon_inode:", PROCFS_ANON}};
	char name[16], link[12] = ""; /* cut off: the kernel has no name that fits half */

	snprintf(name, sizeof(name), "%d", number);
	if (readlinkat(fds, name, link, sizeof(link) - 1) > 0)
		for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
			if (!strncmp(link, kinds[i].prefix, strlen(kinds[i].prefix)))
				return kinds[i].kind;
	return PROCFS_FILE;
}

/* --- processes and threads --- */

/* The fields of /proc/PID/stat, as proc(5) counts them. */
#define STATE       3
#define PARENT      4
#define GROUP       5
#define THREADS     20
#define STARTED     22
#define STOP_SIGNAL 52 /* exit_code: while the process is stopped, what stopped it */

bool procfs_stat(const char *text, struct procfs_stat *out)
{
	const char *at = strrchr(text, ')');
	unsigned long long fields[STOP_SIGNAL + 1] = {0};

	if (!at || at[1] != ' ' || !at[2] || at[3] != ' ')
		return false;
	*out = (struct procfs_stat){.pid = (pid_t)strtol(text, NULL, 10), .state = at[2]};
	at += 3;
	for (int i = STATE + 1; i <= STOP_SIGNAL; i++) {
		char *end;

		fields[i] = strtoull(at, &end, 10); /* a negative value survives the conversion back */
		if (end == at && i <= STARTED)
			return false;
		at = end;
	}
	out->parent = (pid_t)fields[PARENT];
	out->group = (pid_t)fields[GROUP];
	out->threads = (unsigned)fields[THREADS];
	out->started = fields[STARTED];
	out->stop_signal = out->state == 'T' ? (int)fields[STOP_SIGNAL] : 0;
	return true;
}

bool procfs_stat_read(int dirfd, const char *name, struct procfs_stat *out)
{
	char text[1024]; /* 52 numbers and a name of 15 bytes */

	return procfs_head(dirfd, name, text, sizeof(text)) > 0 && procfs_stat(text, out);
}

/* The words of a line, as numbers. How many there are. */
static unsigned procfs_status_line(const char *status, const char *name, unsigned long *numbers, unsigned most)
{
	const char *at = strstr(status, name);
	unsigned count = 0;

	for (at = at ? at + strlen(name) : ""; (*at == ' ' || *at == '\t') && isdigit((unsigned char)at[1]); count++) {
		char *end;
		unsigned long number = strtoul(at, &end, 10);

		if (count < most)
			numbers[count] = number;
		at = end;
	}
	return count;
}

static bool procfs_status(const char *text, struct procfs_status *out)
{
	unsigned long process, tracer, uids[4], number;

	if (procfs_status_line(text, "\nTgid:", &process, 1) != 1 ||
	    procfs_status_line(text, "\nTracerPid:", &tracer, 1) != 1 ||
	    procfs_status_line(text, "\nUid:", uids, 4) != 4)
		return false;
	*out = (struct procfs_status){.process = (pid_t)process, .tracer = (pid_t)tracer};
	for (int i = 0; i < 4; i++)
		out->uids[i] = (uid_t)uids[i];
	out->numbers = procfs_status_line(text, "\nNSpid:", &number, 1);
	return true;
}

bool procfs_status_read(pid_t tid, struct procfs_status *out)
{
	struct procfs_text whole = {0};
	char path[32], head[4096];
	ssize_t n;
	bool known;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	n = procfs_head(AT_FDCWD, path, head, sizeof(head));
	if (n < (ssize_t)sizeof(head) - 1)
		return n > 0 && procfs_status(head, out);
	/* A process may have 65,536 groups, and "NSpid:" stands behind them. */
	known = procfs_read(AT_FDCWD, path, &whole) == 0 && procfs_status(whole.text, out);
	procfs_free(&whole);
	return known;
}

int64_t procfs_ran_ns(pid_t tid)
{
	char path[32], text[64];

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)tid);
	if (procfs_head(AT_FDCWD, path, text, sizeof(text)) <= 0 || !isdigit((unsigned char)*text))
		return -1;
	return strtoll(text, NULL, 10);
}

bool procfs_map_line(char *line, struct procfs_map *out)
{
	unsigned major, minor;
	int rights = 0, name = 0;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %n%*4[-rwxsp] %*x %x:%x %" SCNu64 "%n", &out->from, &out->to, &rights,
		   &major, &minor, &out->ino, &name) != 5 ||
	    !name)
		return false;
	line[strcspn(line, "\n")] = '\0';
	out->rights = line + rights;
	out->dev = makedev(major, minor);
	out->name = line + name + strspn(line + name, " ");
	return true;
}

int procfs_maps(pid_t pid, procfs_map_cb *cb, void *arg)
{
	char path[32], *line = NULL;
	size_t room = 0;
	int ret;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	ret = f ? 0 : -errno;
	while (ret == 0 && getline(&line, &room, f) > 0) {
		struct procfs_map map;

		if (procfs_map_line(line, &map))
			ret = cb(arg, &map);
	}
	free(line);
	if (f)
		fclose(f);
	return ret;
}
