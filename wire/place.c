#include "wire/place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "wire/sys.h"
#include "wire/text.h"

#define SYSTEM_CONFIG "/etc/dflock.conf"
#define USER_CONFIG   "/.config/dflock.conf"

/* A path below no directory: opening it fails, so that a DFLOCK_CONFIG that cannot be used refuses lock calls
 * and never means "no configuration". */
#define UNUSABLE_CONFIG "/dev/null/DFLOCK_CONFIG-has-no-usable-absolute-path"

/* An empty value counts as none: `DFLOCK_CONFIG= job` is how a shell switches it off. */
static const char *setting(const char *name)
{
	const char *value = secure_getenv(name);

	return value && *value ? value : NULL;
}

/* Not there, or in a home directory that is somebody else's (HOME after su): then it is none of ours. */
static bool is_there(const char *path)
{
	struct stat st;

	return sys_stat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR && errno != EACCES);
}

static void make_absolute(struct text *text, const char *path)
{
	if (path[0] != '/') {
		/* The raw call: libc's getcwd() allocates where the kernel's fails, and turns away what is
		 * "(unreachable)" by doing so. */
		long n = sys_raw(SYS_getcwd, text->buf, text->size);

		if (n < 2 || text->buf[0] != '/') {
			text->cut = true;
			return;
		}
		text->len = (size_t)n - 1;
		if (text->len > 1)
			text_add(text, "/");
	}
	text_add(text, path);
}

static void find_config(struct place *place)
{
	const char *env = setting("DFLOCK_CONFIG"), *home = setting("HOME");
	struct text text;

	text_init(&text, place->config, sizeof(place->config));
	if (env) {
		make_absolute(&text, env);
		if (text.cut) {
			text_init(&text, place->config, sizeof(place->config));
			text_add(&text, UNUSABLE_CONFIG);
		}
		return;
	}
	if (home && home[0] == '/') {
		text_add(&text, home);
		text_add(&text, USER_CONFIG);
		if (!text.cut && is_there(place->config))
			return;
	}
	text_init(&text, place->config, sizeof(place->config));
	if (is_there(SYSTEM_CONFIG))
		text_add(&text, SYSTEM_CONFIG);
}

void place_init(struct place *place)
{
	const char *dir = setting("DFLOCK_RUNTIME_DIR");
	struct text text;

	text_init(&text, place->runtime_env, sizeof(place->runtime_env));
	if (dir)
		text_add(&text, dir);
	place->runtime_env_bad = dir && (dir[0] != '/' || text.cut);
	find_config(place);
}

int place_config_id(const char *path, struct wire_config_id *id)
{
	struct stat st;

	if (sys_stat(path, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	*id = (struct wire_config_id){
		.dev = st.st_dev,
		.ino = st.st_ino,
		.size = (uint64_t)st.st_size,
		.mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
		.ctime_ns = (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec,
	};
	return 0;
}
