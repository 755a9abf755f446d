/* See command.h. */
#include "keeper/kernel/command.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "keeper/kernel/errand.h"
#include "procfs/procfs.h"

/* Length of the UTF-8 sequence at s (n bytes left) if it is valid and command_printable, else 0. */
static size_t command_printable(const unsigned char *s, size_t n)
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

/* A process may choose any bytes as its command line: makes them harmless for logs, JSON and terminals. */
static void command_make_printable(char *text, size_t n)
{
	for (size_t i = 0, len; i < n; i += len) {
		len = command_printable((unsigned char *)text + i, n - i);
		if (!len) {
			text[i] = text[i] == '\0' || isspace((unsigned char)text[i]) ? ' ' : '?';
			len = 1;
		}
	}
}

struct command_job {
	int procfd;
	char text[COMMAND_BYTES];
	size_t len;
};

static void command_run(void *memory)
{
	struct command_job *r = memory;

	ssize_t n = procfs_head(r->procfd, "cmdline", r->text, sizeof(r->text));

	r->len = n > 0 ? (size_t)n : 0;
}

static void command_done(void *memory)
{
	struct command_job *r = memory;

	close(r->procfd);
	free(r);
}

static size_t command_read_line(int procfd, char out[COMMAND_BYTES])
{
	struct command_job *r = calloc(1, sizeof(*r));
	struct errand *errand;
	size_t len = 0;

	if (!r)
		return 0;
	r->procfd = fcntl(procfd, F_DUPFD_CLOEXEC, 3);
	if (r->procfd < 0) {
		free(r);
		return 0;
	}
	errand = errand_start(command_run, command_done, r);
	if (!errand)
		return 0;
	if (errand_wait(errand, COMMAND_WAIT_MS)) {
		len = r->len;
		memcpy(out, r->text, len);
	}
	errand_leave(errand);
	return len;
}

void command_read(int procfd, char out[COMMAND_BYTES])
{
	size_t n = command_read_line(procfd, out);

	/* The process is about to end, or wiped its arguments, or its memory cannot be read now: the short name is
	 * always there. */
	if (!n) {
		ssize_t len = procfs_head(procfd, "comm", out, COMMAND_BYTES);

		n = len > 0 ? (size_t)len : 0;
	}
	command_make_printable(out, n);
	while (n > 0 && out[n - 1] == ' ')
		n--;
	out[n] = '\0';
}
