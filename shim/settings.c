#include "shim/settings.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "shim/oldlibc.h"
#include "shim/sys.h"
#include "wire/leases.h"
#include "wire/seqcopy.h"
#include "wire/text.h"

OLDLIBC(dladdr, OLDLIBC_FIRST);

/* Each of the first callers fills a slot of its own, and the first one that finishes publishes it. They do not wait for
 * each other, since a signal handler that interrupted the other one would hang. Only before the constructor can there
 * be more than one. */
#define SLOTS 4
static struct settings settings_slots[SLOTS];
static unsigned int settings_claimed;
static const struct settings *settings_published;

static struct settings_config config_seen;
static uint32_t config_seq;

static void settings_find_library(struct text *path)
{
	Dl_info info;
	long n;

	/* Without this path, a keeper is started from where dflockd is installed. */
	if (!dladdr || !dladdr(&settings_published, &info) || !info.dli_fname)
		return;
	/* LD_PRELOAD=./libdflock.so: the program may change its directory before the path is needed. */
	if (info.dli_fname[0] != '/') {
		n = sys(getcwd, path->buf, path->size);
		if (n < 2 || path->buf[0] != '/') {
			path->buf[0] = '\0';
			return;
		}
		path->len = (size_t)n - 1;
		text_add(path, "/");
	}
	text_add(path, info.dli_fname);
	if (path->cut)
		path->buf[0] = '\0';
}

static void settings_capture(struct settings *s)
{
	const char *log = secure_getenv("DFLOCK_LOG"), *verbose = secure_getenv("DFLOCK_VERBOSE");
	struct stat st;
	struct text library;

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
	text_init(&library, s->library, sizeof(s->library));
	settings_find_library(&library);
}

static const struct settings *settings_publish(void)
{
	const struct settings *s = NULL;
	unsigned int mine = __atomic_fetch_add(&settings_claimed, 1, __ATOMIC_RELAXED);

	if (mine >= SLOTS)
		return NULL;
	settings_capture(&settings_slots[mine]);
	if (__atomic_compare_exchange_n(&settings_published, &s, &settings_slots[mine], false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return &settings_slots[mine];
	return s;
}

void settings_init(void)
{
	if (!__atomic_load_n(&settings_published, __ATOMIC_ACQUIRE))
		settings_publish();
}

const struct settings *settings_get(void)
{
	const struct settings *s = __atomic_load_n(&settings_published, __ATOMIC_ACQUIRE);

	return s || !environ ? s : settings_publish();
}

void settings_config_now(const struct settings *s, struct settings_config *config)
{
	*config = (struct settings_config){.stamp_ns = sys_clock_ns(CLOCK_MONOTONIC_COARSE)};
	config->error = -place_config_id(s->place.config, &config->id);
	if (!config->error)
		config->young = wire_config_is_young(&config->id, sys_clock_ns(CLOCK_REALTIME_COARSE));
	seqcopy_write(&config_seq, &config_seen, config, sizeof(*config));
}

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

void settings_config(const struct settings *s, struct settings_config *config)
{
	if (!seqcopy_read(&config_seq, config, &config_seen, sizeof(*config)) || !settings_is_fresh(config->stamp_ns))
		settings_config_now(s, config);
}
