/* See procfs.h. */
#include "procfs/procfs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

/* A word of a line: where it begins, and how long it is. */
struct procfs_word {
	const char *text;
	size_t len;
};

static bool procfs_is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n';
}

/* The next word, and *line behind it. sscanf() would take five times as long as the kernel takes to write the line. */
static struct procfs_word procfs_next_word(const char **line)
{
	struct procfs_word word;
	const char *at = *line;

	while (procfs_is_blank(*at))
		at++;
	word.text = at;
	while (*at && !procfs_is_blank(*at))
		at++;
	word.len = (size_t)(at - word.text);
	*line = at;
	return word;
}

static bool procfs_is_word(struct procfs_word word, const char *text)
{
	return strlen(text) == word.len && strncmp(word.text, text, word.len) == 0;
}

/* Digits without a sign, and then `end`; *at is behind them. */
static bool procfs_digits(const char **at, int base, char end, uint64_t *out)
{
	char *stop;

	if (!isxdigit((unsigned char)**at))
		return false;
	errno = 0;
	*out = strtoull(*at, &stop, base);
	*at = stop;
	return !errno && *stop == end;
}

/* A number that is all of the word. */
static bool procfs_word_number(struct procfs_word word, int64_t *out)
{
	char *stop;

	errno = 0;
	*out = strtoll(word.text, &stop, 10);
	return word.len && !errno && stop == word.text + word.len;
}

/* "0 EOF": the kernel shows the first and the last byte, and EOF for the last that there can be. */
static bool procfs_lock_range(struct procfs_word from, struct procfs_word to, struct procfs_lock *out)
{
	if (!procfs_word_number(from, &out->from) || out->from < 0)
		return false;
	if (procfs_is_word(to, "EOF")) {
		out->to = WIRE_EOF;
		return true;
	}
	if (!procfs_word_number(to, &out->to) || out->to < out->from || out->to == INT64_MAX)
		return false;
	out->to++;
	return true;
}

/* "00:13:11691": major and minor number in hex. */
static bool procfs_lock_file(struct procfs_word word, struct procfs_lock *out)
{
	const char *at = word.text;
	uint64_t major, minor;

	if (!word.len || !procfs_digits(&at, 16, ':', &major) || *++at == '\0' ||
	    !procfs_digits(&at, 16, ':', &minor) || *++at == '\0' ||
	    !procfs_digits(&at, 10, word.text[word.len], &out->ino))
		return false;
	out->dev = makedev(major, minor);
	return at == word.text + word.len;
}

/* waits: "1: -> FLOCK ..." is looked for, and not "1: FLOCK ...". */
static bool procfs_line(const char *line, bool waits, struct procfs_lock *out)
{
	struct procfs_word number, type, mode, locker, file, from;
	int64_t pid;

	if (!strncmp(line, "lock:", 5))
		line += 5;
	number = procfs_next_word(&line);
	type = procfs_next_word(&line);
	if (procfs_is_word(type, "->") != waits)
		return false;
	if (waits)
		type = procfs_next_word(&line);
	procfs_next_word(&line); /* ADVISORY */
	mode = procfs_next_word(&line);
	locker = procfs_next_word(&line);
	file = procfs_next_word(&line);
	from = procfs_next_word(&line);
	if (number.len < 2 || strspn(number.text, "0123456789") != number.len - 1 ||
	    number.text[number.len - 1] != ':' || !procfs_word_number(locker, &pid) || pid != (pid_t)pid ||
	    !procfs_lock_file(file, out))
		return false;
	out->locker = (pid_t)pid;
	if (procfs_is_word(type, "FLOCK"))
		out->space = WIRE_FLOCK;
	else if (procfs_is_word(type, "POSIX") || procfs_is_word(type, "OFDLCK"))
		out->space = WIRE_RECORD;
	else
		return false;
	out->owner = procfs_is_word(type, "POSIX") ? WIRE_OWNER_PROCESS : WIRE_OWNER_DESCRIPTION;
	if (procfs_is_word(mode, "READ"))
		out->mode = WIRE_SHARED;
	else if (procfs_is_word(mode, "WRITE"))
		out->mode = WIRE_EXCLUSIVE;
	else
		return false;
	return procfs_lock_range(from, procfs_next_word(&line), out);
}

bool procfs_lock_line(const char *line, struct procfs_lock *out)
{
	return procfs_line(line, false, out);
}

bool procfs_wait_line(const char *line, struct procfs_lock *out)
{
	return procfs_line(line, true, out);
}

/* Leaves one blank of several. The line's new length. */
static size_t procfs_squeeze(char *line)
{
	char *to = line;

	for (const char *from = line; *from; from++)
		if (*from != ' ' || to == line || to[-1] != ' ')
			*to++ = *from;
	*to = '\0';
	return (size_t)(to - line);
}

/* Each waiter stands one blank further to the right than the one that it waits behind: a line may have any number of blanks. There is no name in
 * it, so what else it has fits. */
static bool procfs_get_line(FILE *f, char *line, size_t size)
{
	size_t len;

	if (!fgets(line, (int)size, f))
		return false;
	while (!strchr(line, '\n')) {
		len = procfs_squeeze(line);
		if (len + 1 == size || !fgets(line + len, (int)(size - len), f))
			break;
	}
	return true;
}

static int procfs_list(bool waits, procfs_lock_cb *cb, void *arg)
{
	FILE *f = fopen("/proc/locks", "re");
	struct procfs_lock lock;
	char line[224];
	char buffer[16384];
	int ret = f ? 0 : -errno;

	/* The kernel gives a page at the most for each call, and less if less is asked for; and it counts its way through
	 * the list anew for each. stdio would ask for 1 kB. */
	if (f)
		setvbuf(f, buffer, _IOFBF, sizeof(buffer));
	while (ret == 0 && procfs_get_line(f, line, sizeof(line)))
		if (procfs_line(line, waits, &lock))
			ret = cb(arg, &lock);
	if (ret == 0 && ferror(f))
		ret = -EIO;
	if (f)
		fclose(f);
	return ret;
}

int procfs_locks(procfs_lock_cb *cb, void *arg)
{
	return procfs_list(false, cb, arg);
}

int procfs_waits(procfs_lock_cb *cb, void *arg)
{
	return procfs_list(true, cb, arg);
}

int procfs_fdinfo(char *text, struct procfs_fdinfo *info, procfs_lock_cb *cb, void *arg)
{
	int ret = 0;

	if (info)
		*info = (struct procfs_fdinfo){.mount_id = -1};
	for (char *line = text, *next; line && *line && ret == 0; line = next) {
		struct procfs_lock lock;

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (info && !strncmp(line, "mnt_id:", 7))
			info->mount_id = atoi(line + 7);
		else if (info && !strncmp(line, "ino:", 4))
			info->ino = strtoull(line + 4, NULL, 10);
		else if (cb && !strncmp(line, "lock:", 5) && procfs_lock_line(line, &lock))
			ret = cb(arg, &lock);
	}
	return ret;
}

static void procfs_fdinfo_path(int fd, char path[48])
{
	snprintf(path, 48, "/proc/self/fdinfo/%d", fd);
}

int procfs_fdinfo_of(int fd, struct procfs_fdinfo *info, procfs_lock_cb *cb, void *arg)
{
	struct procfs_text text = {0};
	char path[48];
	int ret;

	if (info)
		*info = (struct procfs_fdinfo){.mount_id = -1};
	procfs_fdinfo_path(fd, path);
	ret = procfs_read(AT_FDCWD, path, &text);
	if (ret == 0)
		ret = procfs_fdinfo(text.text, info, cb, arg);
	procfs_free(&text);
	return ret;
}

int procfs_fdinfo_head(int fd, struct procfs_fdinfo *info)
{
	char path[48],
		text[256]; /* "pos:", "flags:", "mnt_id:" and "ino:" come first, and take 100 bytes at the most */
	ssize_t n;

	procfs_fdinfo_path(fd, path);
	n = procfs_head(AT_FDCWD, path, text, sizeof(text));
	procfs_fdinfo(text, info, NULL, NULL);
	return n < 0 ? (int)n : 0;
}
