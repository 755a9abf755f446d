/* See ground.h. */
#include "net/ground.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "shim/settings.h"
#include "wire/sys.h"
#include "wire/rundir.h"

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

	if (protect_gather(s, fd, sys_geteuid(), by) < 0 || protect_refresh(fd, by, &page) < 0)
		return -ENOLCK;
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

/* What the path leads to; while that is missing, the path. */
static uint64_t ground_hash_of(const char *path)
{
	char text[64];
	struct stat st;

	if (stat(path, &st) < 0)
		return leases_hash(path);
	snprintf(text, sizeof(text), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	return leases_hash(text);
}

uint64_t ground_hash(void)
{
	const struct settings *s = settings_get();
	char dir[PLACE_DIR_BYTES], why[512];

	if (rundir_find(&s->place, sys_geteuid(), dir, why, sizeof(why)) < 0)
		dir[0] = '\0';
	return ground_hash_of(s->place.config) ^ ground_hash_of(dir) << 1;
}
