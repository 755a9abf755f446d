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
	const enum protect said = protect_look(fd, look);

	look->elsewhere = elsewhere;
	look->refused = look->disclaimed = false;
	switch (said) {
	case PROTECT_ASK:
		return 0;
	case PROTECT_REFUSED:
		return -ENOLCK;
	default:
		/* Without a configuration, no keeper has a word to say. */
		return elsewhere && settings_get()->place.config[0] && !protect_is_kernels(fd) ? 0 : GROUND_KERNEL;
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
