#include "keeper/holders.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

struct search {
	const struct holders_file *files;
	size_t count;
	holders_cb *cb;
	void *arg;
	struct holder *found; /* of the process that is being looked at */
	size_t found_count, found_room;
};

bool holders_parse_line(const char *line, struct holder *out)
{
	char type[16], mode[16], from[24], to[24];

	if (sscanf(line, "lock: %*[0-9]: %15s %*s %15s %d %*s %23s %23s", type, mode, &out->locker, from, to) != 5)
		return false;
	if (!strcmp(type, "FLOCK"))
		out->space = WIRE_FLOCK;
	else if (!strcmp(type, "POSIX") || !strcmp(type, "OFDLCK"))
		out->space = WIRE_RECORD;
	else
		return false;
	out->owner = !strcmp(type, "POSIX") ? WIRE_OWNER_PROCESS : WIRE_OWNER_DESCRIPTION;
	if (!strcmp(mode, "READ"))
		out->mode = WIRE_SHARED;
	else if (!strcmp(mode, "WRITE"))
		out->mode = WIRE_EXCLUSIVE;
	else
		return false;
	out->from = strtoll(from, NULL, 10);
	/* The kernel shows the last byte; a lock up to the largest offset is shown as EOF. */
	out->to = strcmp(to, "EOF") ? strtoll(to, NULL, 10) + 1 : WIRE_EOF;
	return true;
}

/* Length of the UTF-8 sequence at s (n bytes left) if it is valid and printable, else 0. */
static size_t printable(const unsigned char *s, size_t n)
{
	size_t len = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;

	if (len == 1)
		return s[0] >= 0x20 && s[0] != 0x7f;
	if (!len || len > n)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* C1 controls, overlong forms, surrogates, beyond U+10FFFF */
	if ((s[0] == 0xc2 && s[1] < 0xa0) || (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

/* Anyone may choose any bytes as his command line: what goes into logs, JSON and terminals is made harmless here. */
static void make_printable(char *text, size_t n)
{
	for (size_t i = 0, len; i < n; i += len) {
		len = printable((unsigned char *)text + i, n - i);
		if (!len) {
			text[i] = text[i] == '\0' || isspace((unsigned char)text[i]) ? ' ' : '?';
			len = 1;
		}
	}
}

/* Reads at most size - 1 bytes of `name` below dirfd and a NUL. Their number, or -errno. */
static ssize_t read_small(int dirfd, const char *name, char *buffer, size_t size)
{
	int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, buffer, size - 1);
	if (n < 0)
		n = -errno;
	buffer[n > 0 ? n : 0] = '\0';
	close(fd);
	return n;
}

static bool without_commands;

void holders_without_commands(void)
{
	without_commands = true;
}

static void read_command(int procfd, char command[HOLDER_COMMAND_BYTES])
{
	ssize_t n;

	command[0] = '\0';
	if (without_commands)
		return;
	n = read_small(procfd, "cmdline", command, HOLDER_COMMAND_BYTES);

	if (n <= 0) {
		/* It is about to end, or it wiped its arguments: the short name is always there. */
		n = read_small(procfd, "comm", command, HOLDER_COMMAND_BYTES);
		n = n < 0 ? 0 : n;
	}
	make_printable(command, (size_t)n);
	while (n > 0 && command[n - 1] == ' ')
		n--;
	command[n] = '\0';
}

static void read_start(int procfd, struct holder *h)
{
	char stat[1024], *after;
	struct timespec real, boot;

	if (read_small(procfd, "stat", stat, sizeof(stat)) <= 0)
		return;
	/* The second field is the name in parentheses, which may itself have spaces and parentheses. */
	after = strrchr(stat, ')');
	if (!after ||
	    sscanf(after + 1, " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64,
		   &h->start_ticks) != 1)
		return;
	if (clock_gettime(CLOCK_REALTIME, &real) || clock_gettime(CLOCK_BOOTTIME, &boot))
		return;
	h->started = real.tv_sec - boot.tv_sec + (int64_t)(h->start_ticks / (uint64_t)sysconf(_SC_CLK_TCK));
}

/* Which of the files the descriptor is of; count if none. AT_STATX_DONT_SYNC: a hung file server must not hang us. */
static size_t which_file(const struct search *s, int fds, const char *fd)
{
	struct statx st;
	size_t i;

	if (statx(fds, fd, AT_STATX_DONT_SYNC, STATX_INO, &st))
		return s->count;
	for (i = 0; i < s->count; i++)
		if (s->files[i].ino == st.stx_ino && s->files[i].dev == makedev(st.stx_dev_major, st.stx_dev_minor))
			break;
	return i;
}

static int remember(struct search *s, const struct holder *h)
{
	if (s->found_count == s->found_room) {
		size_t room = s->found_room ? 2 * s->found_room : 8;
		struct holder *more = realloc(s->found, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		s->found = more;
		s->found_room = room;
	}
	s->found[s->found_count++] = *h;
	return 0;
}

/* Goes through the lock lines of one descriptor's fdinfo. */
static int read_locks(struct search *s, FILE *info, int fds, const char *fd)
{
	struct holder h = {.fd = atoi(fd)};
	bool compared = false;
	char line[256];

	while (fgets(line, sizeof(line), info)) {
		int r;

		if (strncmp(line, "lock:", 5) || !holders_parse_line(line, &h))
			continue;
		if (!compared) {
			h.file = which_file(s, fds, fd);
			if (h.file == s->count)
				return 0;
			compared = true;
		}
		r = remember(s, &h);
		if (r)
			return r;
	}
	return 0;
}

static int look_at_fd(struct search *s, int fds, int fdinfos, const char *fd)
{
	char link[12] = "";
	FILE *info;
	int infofd, r;

	/* Most descriptors are none of a file, and readlink tells at a third of the price. Where it fails (a path
	 * longer than PATH_MAX), fdinfo decides. */
	if (readlinkat(fds, fd, link, sizeof(link) - 1) > 0 &&
	    (!strncmp(link, "socket:", 7) || !strncmp(link, "pipe:", 5) || !strncmp(link, "anon_inode:", 11)))
		return 0;
	infofd = openat(fdinfos, fd, O_RDONLY | O_CLOEXEC);
	if (infofd < 0)
		return errno == ENOENT || errno == ESRCH ? 0 : -errno;
	info = fdopen(infofd, "r");
	if (!info) {
		close(infofd);
		return -ENOMEM;
	}
	r = read_locks(s, info, fds, fd);
	fclose(info);
	return r;
}

/* Looks at all descriptors of a process or thread: `dir`/fd and `dir`/fdinfo below procfd. -EACCES: may not. */
static int look_at_fds(struct search *s, int procfd, const char *dir)
{
	char fd_name[64], info_name[64];
	int r = 0, fds = -1, fdinfos = -1;
	DIR *list = NULL;
	struct dirent *e;

	snprintf(fd_name, sizeof(fd_name), "%sfd", dir);
	snprintf(info_name, sizeof(info_name), "%sfdinfo", dir);
	fds = openat(procfd, fd_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fdinfos = openat(procfd, info_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fds < 0 || fdinfos < 0) {
		r = errno == EACCES || errno == EPERM ? -EACCES : errno == ENOENT || errno == ESRCH ? 0 : -errno;
		goto out;
	}
	list = fdopendir(fds);
	if (!list) {
		r = -errno;
		goto out;
	}
	while (!r && (e = readdir(list)))
		if (isdigit((unsigned char)e->d_name[0]))
			r = look_at_fd(s, dirfd(list), fdinfos, e->d_name);
out:
	if (list)
		closedir(list);
	else if (fds >= 0)
		close(fds);
	if (fdinfos >= 0)
		close(fdinfos);
	return r;
}

/*
 * A thread may have descriptors that /proc/PID/fd does not show: after unshare(CLONE_FILES), and all of them once the
 * first thread has ended. Where kcmp cannot say (seccomp), the thread is looked at.
 */
static int look_at_threads(struct search *s, int procfd, pid_t pid)
{
	int tasks = openat(procfd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	struct dirent *e;
	DIR *list;

	if (tasks < 0)
		return 0;
	list = fdopendir(tasks);
	if (!list) {
		close(tasks);
		return -ENOMEM;
	}
	while (!r && (e = readdir(list))) {
		pid_t tid = (pid_t)strtol(e->d_name, NULL, 10);
		char dir[32];

		if (tid <= 0 || tid == pid || syscall(SYS_kcmp, pid, tid, KCMP_FILES, 0, 0) == 0)
			continue;
		snprintf(dir, sizeof(dir), "task/%d/", (int)tid);
		r = look_at_fds(s, procfd, dir);
	}
	closedir(list);
	return r;
}

static int compare(const void *a, const void *b)
{
	const struct holder *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	if (x->space != y->space)
		return x->space < y->space ? -1 : 1;
	if (x->owner != y->owner)
		return x->owner < y->owner ? -1 : 1;
	if (x->mode != y->mode)
		return x->mode < y->mode ? -1 : 1;
	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	if (x->to != y->to)
		return x->to < y->to ? -1 : 1;
	return x->locker < y->locker ? -1 : x->locker > y->locker;
}

static int report(struct search *s, int procfd, pid_t pid)
{
	struct holder about = {.pid = pid};
	char command[HOLDER_COMMAND_BYTES];
	int r = 0;

	if (!s->found_count)
		return 0;
	qsort(s->found, s->found_count, sizeof(*s->found), compare);
	read_command(procfd, command);
	read_start(procfd, &about);
	for (size_t i = 0; i < s->found_count && !r; i++) {
		struct holder *h = &s->found[i];

		if (i && !compare(h - 1, h))
			continue;
		h->pid = pid;
		h->started = about.started;
		h->start_ticks = about.start_ticks;
		h->command = command;
		r = s->cb(s->arg, h);
	}
	return r;
}

static int look_at_process(struct search *s, int proc, const char *name, pid_t pid, size_t *unseen)
{
	/* Kept open: should the pid be reused, what is read through it fails instead of mixing two processes. */
	int procfd = openat(proc, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	if (procfd < 0)
		return errno == ENOENT || errno == ESRCH ? 0 : errno == EACCES ? (++*unseen, 0) : -errno;
	s->found_count = 0;
	r = look_at_fds(s, procfd, "");
	if (!r)
		r = look_at_threads(s, procfd, pid);
	if (r == -EACCES) {
		++*unseen;
		r = 0;
	}
	if (!r)
		r = report(s, procfd, pid);
	close(procfd);
	return r;
}

int holders_find(const struct holders_file *files, size_t count, pid_t ignore_pid, holders_cb *cb, void *arg,
		 size_t *unseen)
{
	struct search s = {.files = files, .count = count, .cb = cb, .arg = arg};
	DIR *list = opendir("/proc");
	size_t not_seen = 0;
	struct dirent *e;
	int r = 0;

	if (!list)
		return -errno;
	errno = 0;
	while (!r && (e = readdir(list))) {
		pid_t pid = isdigit((unsigned char)e->d_name[0]) ? (pid_t)strtol(e->d_name, NULL, 10) : 0;

		if (pid > 0 && (!ignore_pid || pid != ignore_pid))
			r = look_at_process(&s, dirfd(list), e->d_name, pid, &not_seen);
	}
	closedir(list);
	free(s.found);
	if (unseen)
		*unseen = not_seen;
	return r;
}

int holders_of_process(pid_t pid, const struct holders_file *file, holders_cb *cb, void *arg)
{
	struct search s = {.files = file, .count = 1, .cb = cb, .arg = arg};
	size_t not_seen = 0;
	char name[32];
	int r;

	snprintf(name, sizeof(name), "/proc/%d", (int)pid);
	r = look_at_process(&s, AT_FDCWD, name, pid, &not_seen);
	free(s.found);
	return r ? r : not_seen ? -EACCES : 0;
}
