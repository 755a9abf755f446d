#include "store/job.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "store/reply.h"
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

bool job_parse(const char *text, struct store_job *out)
{
	char copy[JOB_TEXT_BYTES], *since, *command;
	uint64_t pid, seconds;
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
	if (!reply_number(copy, &pid) || pid == 0 || pid > INT_MAX || !reply_number(since, &seconds) ||
	    seconds > INT64_MAX)
		return false;
	out->pid = (int)pid;
	out->since = (int64_t)seconds;
	job_set_command(out, command);
	return true;
}
