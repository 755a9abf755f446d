/* What agent.c and player.c make of the words of a command (strtok()'s): descriptors, and lock calls. */
#ifndef DFLOCK_TESTS_WORDS_H
#define DFLOCK_TESTS_WORDS_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define SLOTS 16

static int slots[SLOTS];

static const char *next_word(void)
{
	const char *word = strtok(NULL, " \n");

	return word ? word : "";
}

static int *next_slot(void)
{
	const char *word = next_word();
	int i = *word ? atoi(word) : -1;

	if (i < 0 || i >= SLOTS) {
		fprintf(stderr, "no such slot: %s\n", word);
		exit(2);
	}
	return &slots[i];
}

/* PATH FLAGS: of r, w, rw, dir; c: O_CREAT, e: O_CLOEXEC. */
static int call_open(void)
{
	const char *path = next_word(), *word = next_word();
	int flags = strstr(word, "rw") ? O_RDWR : strchr(word, 'w') ? O_WRONLY : O_RDONLY;

	if (strcmp(word, "dir") == 0)
		return open(path, O_RDONLY | O_DIRECTORY);
	return open(path, flags | (strchr(word, 'c') ? O_CREAT : 0) | (strchr(word, 'e') ? O_CLOEXEC : 0), 0644);
}

/* sh ex un nb in any mix */
static int call_flock(int fd)
{
	int op = 0;

	for (const char *word; *(word = next_word());)
		op |= strcmp(word, "sh") == 0   ? LOCK_SH
		      : strcmp(word, "ex") == 0 ? LOCK_EX
		      : strcmp(word, "un") == 0 ? LOCK_UN
						: LOCK_NB;
	return flock(fd, op);
}

/* sh|ex|un FROM LEN [w] [ofd] [cur|end]: FROM counts from the start, the offset or the end of the file. */
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

/* w: F_SETLKW; ofd: F_OFD_SETLK[W] */
static int set_record(int fd)
{
	bool wait, ofd;
	struct flock lock = record_lock(&wait, &ofd);

	return fcntl(fd, ofd ? (wait ? F_OFD_SETLKW : F_OFD_SETLK) : (wait ? F_SETLKW : F_SETLK), &lock);
}

static int get_record(int fd, struct flock *lock)
{
	bool wait, ofd;

	*lock = record_lock(&wait, &ofd);
	return fcntl(fd, ofd ? F_OFD_GETLK : F_GETLK, lock);
}

static const char *mode_of(const struct flock *lock)
{
	return lock->l_type == F_RDLCK ? "sh" : lock->l_type == F_WRLCK ? "ex" : "un";
}

/* lock|tlock|test|ulock LEN */
static int call_lockf(int fd)
{
	const char *what = next_word();
	int cmd = strcmp(what, "lock") == 0    ? F_LOCK
		  : strcmp(what, "tlock") == 0 ? F_TLOCK
		  : strcmp(what, "test") == 0  ? F_TEST
					       : F_ULOCK;

	return lockf(fd, cmd, strtoll(next_word(), NULL, 10));
}

static int call_seek(int fd) { return lseek(fd, strtoll(next_word(), NULL, 10), SEEK_SET) < 0 ? -1 : 0; }

#endif
