#include "store/job.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/text.h"

static void job_set_command(struct store_job *job, const char *command)
{
	size_t n = strnlen(command, JOB_COMMAND_BYTES - 1);

	memmove(job->command, command, n);
	job->command[n] = '\0';
	text_make_printable(job->command, n);
}

void job_format(char text[JOB_TEXT_BYTES], const struct store_job *job)
{
	struct store_job clean = *job;

	job_set_command(&clean, job->command);
	text[0] = '\0';
	if (clean.pid > 0)
		snprintf(text, JOB_TEXT_BYTES, "%d %" PRId64 " %s", clean.pid, clean.since > 0 ? clean.since : 0,
			 clean.command);
}

/* Digits, and nothing else. */
static bool job_number(const char *text, int64_t max, int64_t *out)
{
	errno = 0;
	*out = strtoll(text, NULL, 10);
	return *text && text[strspn(text, "0123456789")] == '\0' && errno == 0 && *out <= max;
}

bool job_parse(const char *text, struct store_job *out)
{
	char copy[JOB_TEXT_BYTES], *since, *command;
	int64_t pid, seconds;
	size_t n = strlen(text);

	*out = (struct store_job){.pid = 0};
	if (n >= sizeof(copy))
		return false;
	memcpy(copy, text, n + 1);
	since = strchr(copy, ' ');
	command = since ? strchr(since + 1, ' ') : NULL;
	if (!command)
		return false;
	*since++ = *command++ = '\0';
	if (!job_number(copy, INT_MAX, &pid) || pid == 0 || !job_number(since, INT64_MAX, &seconds))
		return false;
	out->pid = (int)pid;
	out->since = seconds;
	job_set_command(out, command);
	return true;
}
