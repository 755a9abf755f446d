/* See ground.h. */
#include "net/ground.h"

#include <errno.h>

#include "shim/mapping.h"
#include "shim/note.h"
#include "shim/settings.h"
#include "shim/sys.h"

int ground_look(int fd, struct protect_look *look, bool elsewhere)
{
	switch (protect_look(fd, look)) {
	case PROTECT_ASK:
		return 0;
	case PROTECT_REFUSED:
		return -ENOLCK;
	default:
		/* Without a configuration, no keeper has a word to say. */
		return elsewhere && settings_get()->place.config[0] && !protect_is_kernels(fd) ? 0 : GROUND_KERNEL;
	}
}

/* Which keeper to ask, whatever its page says. */
static int ground_gather(int fd, struct protect_by *by)
{
	const struct settings *s = settings_get();
	struct settings_config config;
	const struct page *page;
	char why[512];

	if (protect_gather(s, fd, sys_geteuid(), by) < 0)
		return -ENOLCK;
	if (mapping_refresh(by->dir, by->euid, &page, why, sizeof(why)) < 0) {
		note_refused(fd, why, NULL);
		return -ENOLCK;
	}
	settings_config_now(s, &config);
	by->mine = protect_which(s, &config, page);
	return 0;
}

int ground_ask(int fd, struct protect_look *look, bool elsewhere)
{
	if (elsewhere)
		return ground_gather(fd, &look->by);
	switch (protect_ask(fd, look)) {
	case PROTECT_ASK:
		return 0;
	case PROTECT_REFUSED:
		return -ENOLCK;
	default:
		return GROUND_KERNEL;
	}
}
