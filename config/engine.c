#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "config/internal.h"
#include "wire/place.h"

const char *config_engine(const struct config_store *store)
{
	return store->zookeeper ? "zookeeper" : store->postgresql ? "postgresql" : NULL;
}

/* Never by a search path or an environment: what is loaded has all that the keeper may do. */
int config_find_engine(const char *engine, char path[PATH_MAX], char *why, size_t why_size)
{
	char file[64], installed[PATH_MAX];

	snprintf(file, sizeof(file), "dflock-%s.so", engine);
	snprintf(installed, sizeof(installed), "%s/%s", ENGINES_INSTALLED, file);
	place_find(file, "libexec", installed, path);
	if (access(path, F_OK) == 0)
		return 0;
	snprintf(why, why_size, "store.%s needs the package dflock-%s: there is no %s", engine, engine, path);
	return -ENOENT;
}
