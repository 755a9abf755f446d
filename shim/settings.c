#include "shim/settings.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "shim/oldlibc.h"
#include "wire/sys.h"
#include "wire/leases.h"
#include "wire/seqcopy.h"

OLDLIBC(dladdr, OLDLIBC_FIRST);

/* Each of the first callers fills a slot of its own, and the first one that finishes publishes it. They do not wait for
 * each other, since a signal handler that interrupted the other one would hang. Only before the constructor can there
 * be more than one. */
#define SLOTS 4

/* How long an answer of the file system may be used. */
#define SETTINGS_FRESH_NS 1000000000

/* Together, and linked first (Makefile), so that they begin in the page that the dynamic linker has touched already: every page
 * more that is written makes every program start more slowly. */
static struct {
	const struct settings *published;
	unsigned int claimed;
	struct settings slots[SLOTS];
	char library[SLOTS][PATH_MAX];
} settings;

static struct settings_config config_seen;
static uint32_t config_seq;

/* Without this path, a keeper is started from where dflockd is installed. */
static const char *settings_find_library(unsigned int slot)
{
	char *made = settings.library[slot];
	Dl_info info;

	if (!dladdr || !dladdr(&settings, &info) || !info.dli_fname)
		return "";
	/* The dynamic linker keeps the name for as long as the library is loaded. */
	if (info.dli_fname[0] == '/')
		return info.dli_fname;
	/* LD_PRELOAD=./libdflock.so: the program may change its directory before the path is needed. */
	return place_absolute(info.dli_fname, made) == 0 ? made : "";
}

static void settings_capture(struct settings *s, unsigned int slot)
{
	const char *log = secure_getenv("DFLOCK_LOG"), *verbose = secure_getenv("DFLOCK_VERBOSE");
	struct stat st;

	place_init(&s->place);
	s->config_hash = leases_hash(s->place.config);
	s->debug = log && strcmp(log, "debug") == 0;
	s->verbose = verbose && *verbose && strcmp(verbose, "0") != 0;
	if (sys_fstat(2, &st) == 0) {
		s->has_stderr = true;
		s->stderr_dev = st.st_dev;
		s->stderr_ino = st.st_ino;
	}
	if (sys_stat("/", &st) == 0) {
		s->has_root = true;
		s->root_dev = st.st_dev;
		s->root_ino = st.st_ino;
	}
	s->library = settings_find_library(slot);
}

static const struct settings *settings_publish(void)
{
	const struct settings *s = NULL;
	unsigned int mine = __atomic_fetch_add(&settings.claimed, 1, __ATOMIC_RELAXED);

	if (mine >= SLOTS)
		return NULL;
	settings_capture(&settings.slots[mine], mine);
	if (__atomic_compare_exchange_n(&settings.published, &s, &settings.slots[mine], false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return &settings.slots[mine];
	return s;
}

void settings_init(void)
{
	if (!__atomic_load_n(&settings.published, __ATOMIC_ACQUIRE))
		settings_publish();
}

const struct settings *settings_get(void)
{
	const struct settings *s = __atomic_load_n(&settings.published, __ATOMIC_ACQUIRE);

	return s || !environ ? s : settings_publish();
}

void settings_config_now(const struct settings *s, struct settings_config *config)
{
	*config = (struct settings_config){.stamp_ns = sys_kernel_clock_ns(CLOCK_MONOTONIC_COARSE)};
	config->error = -place_config_id(s->place.config, &config->id);
	if (!config->error)
		config->young = wire_config_is_young(&config->id, sys_clock_ns(CLOCK_REALTIME_COARSE));
	seqcopy_write(&config_seq, &config_seen, config, sizeof(*config));
}

/* By libc's clock, since this is part of each lock call. Where that is not the kernel's, no look is fresh. */
static bool settings_is_fresh(int64_t stamp_ns)
{
	int64_t age_ns = sys_clock_ns(CLOCK_MONOTONIC_COARSE) - stamp_ns;

	return stamp_ns && age_ns >= 0 && age_ns < SETTINGS_FRESH_NS;
}

int64_t settings_stamp(void)
{
	int64_t stamp_ns;

	return seqcopy_read(&config_seq, &stamp_ns, &config_seen.stamp_ns, sizeof(stamp_ns)) &&
			       settings_is_fresh(stamp_ns)
		       ? stamp_ns
		       : 0;
}

bool settings_config(const struct settings *s, struct settings_config *config)
{
	if (seqcopy_read(&config_seq, config, &config_seen, sizeof(*config)) && settings_is_fresh(config->stamp_ns))
		return false;
	settings_config_now(s, config);
	return true;
}
