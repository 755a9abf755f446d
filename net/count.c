/* See count.h. The tally is looked for once, at the first call: the process that has made it waits for the job. */
#include "net/count.h"

#include <pthread.h>
#include <stdlib.h>

#include "shim/name.h"
#include "shim/report.h"

static pthread_once_t count_once = PTHREAD_ONCE_INIT;
static struct tally *count_tally;

static void count_open(void)
{
	count_tally = report_map(getenv(TALLY_ENV));
}

void count_decided(const struct thread *t, const struct want *want, int ret)
{
	char path[PATH_MAX];
	const struct tally_key key = {.program = t->command, .path = path, .space = want->intent.space};
	struct tally_entry *entry;

	pthread_once(&count_once, count_open);
	if (!count_tally || name_read(want->fd, path) != 0)
		return;
	entry = tally_find(count_tally, &key);
	if (entry)
		tally_add(entry, ret == 0 ? TALLY_CAUGHT : TALLY_CAUGHT_FAILED, 1); /* mutant: count-caught */
}
