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
#include <unistd.h>

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

#define LIST_PIECE 4000 /* all of it is in one call: the kernel writes a page at the most */
#define LIST_TRIES 8

/* One way through /proc/locks, and the locks that it had. */
struct procfs_way {
	int fd;
	bool ended;
	size_t at, len; /* at: so many bytes were read */
	char line[224]; /* no name is in it */
	struct procfs_lock *locks;
	size_t count, room, from; /* from: of the last piece */
	bool jumped;              /* a piece did not begin in the other way's last one */
};

static int procfs_way_add(struct procfs_way *way, const struct procfs_lock *lock)
{
	if (way->count == way->room) {
		size_t room = way->room ? 2 * way->room : 256;
		struct procfs_lock *locks = reallocarray(way->locks, room, sizeof(*locks));

		if (!locks)
			return -ENOMEM;
		way->locks = locks;
		way->room = room;
	}
	way->locks[way->count++] = *lock;
	return 0;
}

static int procfs_compare_locks(const void *a, const void *b)
{
	const struct procfs_lock *x = a, *y = b;
	const int64_t pairs[][2] = {{(int64_t)x->ino, (int64_t)y->ino},
				    {x->from, y->from},
				    {x->to, y->to},
				    {x->locker, y->locker},
				    {x->space, y->space},
				    {x->owner, y->owner},
				    {x->mode, y->mode},
				    {(int64_t)x->dev, (int64_t)y->dev}};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++)
		if (pairs[i][0] != pairs[i][1])
			return pairs[i][0] < pairs[i][1] ? -1 : 1;
	return 0;
}

/* In its last piece? */
static bool procfs_way_has(const struct procfs_way *way, const struct procfs_lock *lock)
{
	for (size_t i = way->from; i < way->count; i++)
		if (procfs_compare_locks(&way->locks[i], lock) == 0)
			return true;
	return false;
}

/* Takes the next byte of the list. The kernel indents each waiter by one blank more than the one that it waits behind, so a line may have
 * any number of blanks: one of several is kept. True: a line ends. */
static bool procfs_way_byte(struct procfs_way *way, char c)
{
	if (c == '\n') {
		way->line[way->len] = '\0';
		way->len = 0;
		return true;
	}
	if (way->len + 1 < sizeof(way->line) && (c != ' ' || !way->len || way->line[way->len - 1] != ' '))
		way->line[way->len++] = c;
	return false;
}

/* One piece. Its first line may be the rest of the piece before: the second one is looked for in the other way's, too. */
static int procfs_way_on(struct procfs_way *way, const struct procfs_way *other, bool waits)
{
	char piece[LIST_PIECE];
	struct procfs_lock lock;
	unsigned lines = 0;
	ssize_t size = read(way->fd, piece, way->at || !other->at ? LIST_PIECE : LIST_PIECE / 2);
	int ret = 0;

	if (size <= 0) {
		way->ended = true;
		return size < 0 ? -errno : 0;
	}
	way->at += (size_t)size;
	way->from = way->count;
	for (ssize_t i = 0; i < size && ret == 0; i++) {
		if (!procfs_way_byte(way, piece[i]))
			continue;
		lines++;
		if (!procfs_line(way->line, waits, &lock))
			continue;
		if (lines <= 2 && other->count > other->from && !procfs_way_has(other, &lock))
			way->jumped = true;
		ret = procfs_way_add(way, &lock);
	}
	return ret;
}

static int procfs_way_open(struct procfs_way *way)
{
	way->at = way->len = 0;
	way->from = way->count;
	way->jumped = way->ended = false;
	way->fd = open("/proc/locks", O_RDONLY | O_CLOEXEC);
	return way->fd < 0 ? -errno : 0;
}

static bool procfs_ways_differ(const struct procfs_way ways[2])
{
	if (!ways[0].count || !ways[1].count)
		return ways[0].count != ways[1].count;
	return ways[0].jumped || ways[1].jumped ||
	       procfs_compare_locks(&ways[0].locks[ways[0].count - 1], &ways[1].locks[ways[1].count - 1]) != 0;
}

/*
 * Between two pieces locks come and go: when some before the next piece go, that piece begins so much too late. So there are two ways
 * through the list, in turns, and the pieces of one begin where those of the other have their middle: what stands is in one of them.
 * -EAGAIN: so many came or went that it may be in none; so it is where the end came nearer, and one way has not met it. A list of half a
 * piece is read at once.
 */
static int procfs_ways_read(struct procfs_way ways[2], bool waits)
{
	int ret = procfs_way_open(&ways[0]);

	ways[1].fd = -1;
	ways[1].at = 0;
	ways[1].from = ways[1].count;
	if (ret == 0)
		ret = procfs_way_on(&ways[0], &ways[1], waits);
	if (ret == 0 && ways[0].at <= LIST_PIECE / 2) /* that may be for a lock with many waiters */
		ret = procfs_way_on(&ways[0], &ways[1], waits);
	if (ret == 0 && !ways[0].ended) {
		ret = procfs_way_open(&ways[1]);
		while (ret == 0 && !(ways[0].ended && ways[1].ended)) {
			int i = ways[0].ended || (!ways[1].ended && ways[1].at <= ways[0].at);

			ret = procfs_way_on(&ways[i], &ways[!i], waits);
		}
		if (ret == 0 && procfs_ways_differ(ways))
			ret = -EAGAIN;
	}
	for (int i = 0; i < 2; i++)
		if (ways[i].fd >= 0)
			close(ways[i].fd);
	return ret;
}

/* Behind the first one, or (`alike`) behind all that are like it. */
static size_t procfs_way_behind(const struct procfs_way *way, size_t at, const struct procfs_lock *lock, bool alike)
{
	size_t behind = at;

	while (behind < way->count && (alike || behind == at) && procfs_compare_locks(&way->locks[behind], lock) == 0)
		behind++;
	return behind;
}

/* What one way or the other has. One process may have several that are alike, and then each way has all of them. */
static int procfs_ways_tell(const struct procfs_way ways[2], bool again, procfs_lock_cb *cb, void *arg)
{
	const struct procfs_way *a = &ways[0], *b = &ways[1];
	size_t i = 0, j = 0;
	int ret = 0;

	for (int way = 0; way < 2; way++)
		if (ways[way].count)
			qsort(ways[way].locks, ways[way].count, sizeof(*ways[way].locks), procfs_compare_locks);
	while (ret == 0 && (i < a->count || j < b->count)) {
		bool first = j == b->count || (i < a->count && procfs_compare_locks(&a->locks[i], &b->locks[j]) <= 0);
		const struct procfs_lock *lock = first ? &a->locks[i] : &b->locks[j];

		i = procfs_way_behind(a, i, lock, again);
		j = procfs_way_behind(b, j, lock, again);
		ret = cb(arg, lock);
	}
	return ret;
}

/* A reading without -EAGAIN has all that stands. If there is none in LIST_TRIES, because too many come and go, each lock that any of them
 * had is told once, and -EAGAIN is returned. */
static int procfs_list(bool waits, procfs_lock_cb *cb, void *arg)
{
	struct procfs_way ways[2] = {{.locks = NULL}, {.locks = NULL}};
	int ret = -EAGAIN, told = 0, tries = 0;

	while (ret == -EAGAIN && tries++ < LIST_TRIES)
		ret = procfs_ways_read(ways, waits);
	if (ret == 0 || ret == -EAGAIN)
		told = procfs_ways_tell(ways, tries > 1, cb, arg);
	free(ways[0].locks);
	free(ways[1].locks);
	return told ? told : ret;
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
