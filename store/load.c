#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "store/internal.h"

/* What a test has linked. Hidden: the dynamic linker looks for it in no other object. */
extern const struct engine dflock_engine __attribute__((weak, visibility("hidden")));

static const struct engine *load_object(const char *name, const char *path, char *why, size_t why_size)
{
	void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const struct engine *engine = object ? dlsym(object, "dflock_engine") : NULL;

	if (!engine)
		snprintf(why, why_size,
			 "store.%s cannot be used: %s (install dflock-%s " DFLOCK_VERSION " and what it needs)", name,
			 dlerror(), name);
	else if (strcmp(engine->version, DFLOCK_VERSION) != 0)
		snprintf(why, why_size,
			 "store.%s cannot be used: %s is of dflock %.40s, and the keeper of " DFLOCK_VERSION
			 ": install both of one version",
			 name, path, engine->version);
	else
		return engine;
	return NULL;
}

const struct engine *store_engine(const struct config_store *config, char *why, size_t why_size)
{
	const char *name = config_engine(config);
	char path[PATH_MAX];

	if (!name)
		return &redis_engine;
	if (&dflock_engine)
		return &dflock_engine;
	return config_find_engine(name, path, why, why_size) < 0 ? NULL : load_object(name, path, why, why_size);
}
