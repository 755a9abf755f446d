/* See ground.h. */
#include "net/ground.h"

#include <errno.h>

#include "shim/settings.h"

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
