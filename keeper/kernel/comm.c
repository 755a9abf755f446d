/* See comm.h. */
#include "keeper/kernel/comm.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "procfs/procfs.h"
#include "wire/text.h"

void comm_read(pid_t pid, char out[COMM_BYTES])
{
	char path[32], text[COMM_BYTES + 1]; /* with the line feed */
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	n = procfs_head(AT_FDCWD, path, text, sizeof(text));
	n = n < 0 ? 0 : n > 0 && text[n - 1] == '\n' ? n - 1 : n;
	memcpy(out, text, (size_t)n < COMM_BYTES ? (size_t)n : COMM_BYTES - 1);
	out[(size_t)n < COMM_BYTES ? (size_t)n : COMM_BYTES - 1] = '\0';
	text_make_printable(out, strlen(out));
}
