#include "shim/protect.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "shim/mapping.h"
#include "shim/name.h"
#include "shim/note.h"
#include "shim/root.h"
#include "shim/recent.h"
#include "shim/settings.h"
#include "wire/sys.h"
#include "wire/page.h"
#include "wire/rundir.h"
#include "wire/text.h"

/* Does the path lead to the file, by that mount? The path's servers may be asked. */
static bool protect_leads_to(const struct recent_key *key, const char *name)
{
	struct statx stx;

	return sys(statx, AT_FDCWD, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
		   STATX_INO | RECENT_MOUNT, &stx) == 0 &&
	       makedev(stx.stx_dev_major, stx.stx_dev_minor) == key->dev && stx.stx_ino == key->ino &&
	       stx.stx_mnt_id == key->mount;
}

/* The number of fd's mount in mountinfo. UINT64_MAX: it cannot be known, and is in no table. */
static uint64_t protect_mount_number(int fd)
{
	struct statx stx;
	long ret = sys(statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &stx);

	return ret == 0 && stx.stx_mask & STATX_MNT_ID ? stx.stx_mnt_id : UINT64_MAX;
}

/* Is the mount in this thread's table? If that may not be read, or there is no descriptor left for it, the file's path tells. */
static __attribute__((noinline)) bool protect_finds_mount(int of, const struct recent_key *key, const char *name)
{
	const uint64_t wanted = protect_mount_number(of);
	long fd = sys(openat, AT_FDCWD, "/proc/thread-self/mountinfo", O_RDONLY | O_CLOEXEC), n = 0;
	bool found = false, first = true; /* in the first field of a line */
	uint64_t number = 0;
	char part[1024];

	if (fd < 0)
		return protect_leads_to(key, name);
	while (!found && (n = sys(read, fd, part, sizeof(part))) > 0)
		for (const char *c = part; c < part + n && !found; c++) {
			found = first && *c == ' ' && number == wanted;
			first = *c == '\n' || (first && *c != ' ');
			number = !first || *c == '\n' ? 0 : number * 10 + (unsigned)(*c - '0');
		}
	sys(close, fd);
	return found;
}

/* Looked up once a second, for the mount of the last file. */
static bool protect_is_mounted(int fd, const struct recent_key *key, const char *name)
{
	static struct protect_fact fact;
	bool is;

	return protect_knows(&fact, key->stamp_ns, key->mount, &is) ||
	       (protect_finds_mount(fd, key, name) && protect_note(&fact, key->stamp_ns, key->mount, true));
}

/* No rule names the path. Does that prove nothing, since the mount is gone (umount -l) and a rule has covered files of the device? A
 * file system that is mounted is asked nothing: its server may hang. */
static bool protect_is_adrift(const struct page *page, int fd, const struct recent_key *key, const char *name)
{
	const bool covered = page_covers(page, key->dev);
	struct statfs fs;

	if (!key->ino || (!covered && (major(key->dev) || !page_covers(page, PAGE_COVERED_TYPE))) ||
	    protect_is_mounted(fd, key, name))
		return false;
	return covered || fstatfs(fd, &fs) < 0 || page_covers(page, PAGE_COVERED_TYPE | (uint32_t)fs.f_type);
}

/*
 * What the page says about `fd`; PAGE_SAYS_NOTHING also if there is no page. With PAGE_SAYS_REFUSE, the message was
 * written if `say` is set. *hash: that of the file's path, if the page was asked about it. key: the file's; NULL: the keeper was asked
 * where it is. The root directory is looked at after the name was read: another thread may call chroot() in between. Not inlined: the
 * stack may be small.
 */
static __attribute__((noinline)) enum page_answer protect_consult(const struct page *page,
								  const struct page_config *mine, int fd,
								  const struct recent_key *key, bool say,
								  uint64_t *hash)
{
	char name[PATH_MAX], message[PAGE_MESSAGE_BYTES];
	enum page_answer answer;
	int named = page ? name_read(fd, name) : -1;

	if (named == NAME_NONE)
		return PAGE_SAYS_NO;
	if (named < 0 || !protect_same_root(page))
		return PAGE_SAYS_NOTHING;
	if (name[0] != '/')
		return PAGE_SAYS_NO;
	answer = page_ask(page, mine, name, message);
	if (answer == PAGE_SAYS_REFUSE && say)
		note_refused(fd, "the configuration is invalid: %s", message);
	*hash = leases_hash(name);
	return answer == PAGE_SAYS_NO && key && protect_is_adrift(page, fd, key, name) ? PAGE_SAYS_NOTHING : answer;
}

/* Looked up once a second. A program gets other clocks only by a preload, or by making itself, or a child, enter a time namespace; and a
 * keeper that sees a process also sees the processes that this one starts. */
bool protect_page_is_near(const struct protect_look *look)
{
	static struct protect_fact fact;
	const uint64_t about = (uintptr_t)look->page;
	bool same;

	return protect_knows(&fact, look->first.stamp_ns, about, &same)
		       ? same
		       : protect_note(&fact, look->first.stamp_ns, about,
				      settings_stamp() && leases_same_namespaces(&look->page->leases));
}

static __attribute__((noinline)) bool protect_has_path(int fd, uint64_t hash)
{
	char name[PATH_MAX];

	return name_read(fd, name) == 0 && leases_hash(name) == hash;
}

/* This process may have had another user when the answer was remembered. */
static bool protect_is_of_user(const struct recent *seen, struct protect_first *first)
{
	return seen->owner == 0 || seen->owner == (first->euid = rundir_uid(first->euid));
}

/* The file has changed since an earlier look within the last second; does it still have its path? */
static bool protect_is_seen(int fd, struct recent_key *key, struct recent *seen, struct protect_first *first)
{
	recent_look(key);
	if (!recent_find_path(key, seen) || !protect_is_of_user(seen, first) || !protect_has_path(fd, seen->path_hash))
		return false;
	recent_add(key, seen);
	return true;
}

static void protect_set_shown(struct protect_look *look, const struct page *page, const struct recent_key *key,
			      uint64_t hash)
{
	look->page = key->ino ? page : NULL;
	look->file = (struct leases_file){.dev = key->dev, .ino = key->ino, .path_hash = hash};
}

static enum page_answer protect_seen_answer(struct protect_look *look, const struct recent_key *key,
					    const struct recent *seen)
{
	if (seen->page)
		protect_set_shown(look, seen->page, key, seen->path_hash);
	return seen->page ? PAGE_SAYS_YES : PAGE_SAYS_NO;
}

/* `key`, and whether it may be remembered, are those of look->first.stamp_ns, if that is not 0. Not inlined: what most calls
 * need is before it. */
static __attribute__((noinline)) enum page_answer
protect_new_answer(const struct settings *s, int fd, struct protect_look *look, struct recent_key *key, bool keyed)
{
	struct protect_first *first = &look->first;
	const int64_t stamp_ns = first->stamp_ns;
	struct settings_config config;
	struct recent seen;
	enum page_answer answer;

	first->is_new = settings_config(s, &config);
	first->stamp_ns = config.stamp_ns;
	/* Before the name is read, so that a rename in between changes the key. */
	if (stamp_ns != config.stamp_ns)
		keyed = recent_key(fd, config.stamp_ns, key);
	if (keyed && protect_is_seen(fd, key, &seen, first))
		return protect_seen_answer(look, key, &seen);
	seen = (struct recent){0};
	seen.page = mapping_find(&first->euid, &seen.owner);
	first->mine = protect_which_here(s, &config, seen.page);
	answer = protect_consult(seen.page, &first->mine, fd, key, false, &seen.path_hash);
	first->has_mine = answer == PAGE_SAYS_YES;
	if (answer == PAGE_SAYS_YES)
		protect_set_shown(look, seen.page, key, seen.path_hash);
	else if (answer == PAGE_SAYS_NO)
		seen.page = NULL;
	else
		keyed = false;
	if (keyed)
		recent_add(key, &seen);
	return answer;
}

/* The answer from what is known already: a page that was mapped before, and a look at the configuration within the last
 * second. "No" is certain. "Yes" must be confirmed by the keeper, unless the page shows a lease. */
static enum page_answer protect_quick_answer(const struct settings *s, int fd, struct protect_look *look)
{
	struct protect_first *first = &look->first;
	struct recent_key key;
	struct recent seen;
	bool keyed;

	first->stamp_ns = settings_stamp();
	keyed = first->stamp_ns && recent_key(fd, first->stamp_ns, &key);
	if (keyed && recent_find(&key, &seen) && protect_is_of_user(&seen, first))
		return protect_seen_answer(look, &key, &seen);
	return protect_new_answer(s, fd, look, &key, keyed);
}

bool protect_kernel_refuses(int fd)
{
	long flags = sys_fcntl(fd, F_GETFL, 0L);

	/* A descriptor that was opened for neither reading nor writing (O_ACCMODE, a Linux extension) gives EBADF,
	 * too. */
	return flags == -EBADF || (flags >= 0 && ((flags & O_PATH) || (flags & O_ACCMODE) == O_ACCMODE));
}

static bool is_something_else(int fd)
{
	struct stat st;

	/* fstat() may fail because of a file server: that does not make the file unprotected. */
	if (sys_fstat(fd, &st) < 0)
		return errno == EBADF;
	return !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

bool protect_is_kernels(int fd)
{
	return protect_kernel_refuses(fd) || is_something_else(fd);
}

/* After chroot(), when the configuration cannot be found. */
static enum protect protect_ask_root(int fd)
{
	char name[PATH_MAX];

	switch (root_ask(fd, name_read(fd, name) < 0 ? NULL : name)) {
	case PAGE_SAYS_NO:
		return PROTECT_NO;
	case PAGE_SAYS_YES:
		note_refused(fd, "it is protected, and after chroot() the configuration cannot be read; put it and the "
				 "runtime directory into the new root directory");
		return PROTECT_REFUSED;
	default:
		note_refused(fd, "after chroot() the configuration cannot be read, and it cannot be known whether this "
				 "file is protected; mount /proc in the new root directory, and start dflockd before "
				 "the program");
		return PROTECT_REFUSED;
	}
}

int protect_gather(const struct settings *s, int fd, uid_t euid, struct protect_by *by)
{
	char why[512];
	int ret;

	by->config = s->place.config;
	by->euid = euid;
	ret = rundir_find(&s->place, by->euid, by->dir, why, sizeof(why));
	if (ret < 0 && ret != -ENOENT) {
		note_refused(fd, "%s", why);
		return ret;
	}
	return 0;
}

static bool protect_is_patient(int fd, const struct protect_look *look)
{
	return look->waits && protect_on_refused(fd) == WIRE_ON_REFUSED_WAIT;
}

static void protect_remember(const struct recent_key *key, const struct page *page, uint64_t hash, uid_t euid)
{
	struct recent seen = {.path_hash = hash};

	seen.page = mapping_find(&euid, &seen.owner);
	if (seen.page == page)
		recent_add(key, &seen);
}

/* Looks at the page that is in the runtime directory now. */
static enum protect protect_full_look(const struct settings *s, const struct settings_config *config, int fd,
				      struct protect_look *look)
{
	struct protect_by *by = &look->by;
	const struct page *page;
	struct recent_key key;
	bool keyed = true;
	uint64_t hash;

	if (protect_refresh(fd, by, &page) < 0)
		return PROTECT_REFUSED;
	if (recent_key(fd, config->stamp_ns, &key))
		recent_look(&key);
	else
		keyed = false;
	by->mine = protect_which(s, config, page);
	switch (protect_consult(page, &by->mine, fd, &key, !look->waits, &hash)) {
	case PAGE_SAYS_NO:
		return PROTECT_NO;
	case PAGE_SAYS_REFUSE:
		if (protect_is_patient(fd, look))
			return PROTECT_ASK;
		if (look->waits) /* with the line that was left out */
			protect_consult(page, &by->mine, fd, NULL, true, &hash);
		return PROTECT_REFUSED;
	case PAGE_SAYS_YES:
		look->first.stamp_ns = config->stamp_ns;
		protect_set_shown(look, page, &key, hash);
		if (keyed)
			protect_remember(&key, page, hash, by->euid);
		return PROTECT_ASK;
	default:
		/* The file is missing, and no rules are known. */
		if (config->error && !protect_is_patient(fd, look)) {
			errno = config->error;
			note_refused(fd,
				     "the configuration cannot be read; put it back, or start the program without it: "
				     "%s: %m",
				     s->place.config);
			return PROTECT_REFUSED;
		}
		return PROTECT_ASK;
	}
}

enum protect protect_look(int fd, struct protect_look *look)
{
	static bool warned;
	const struct settings *s = settings_get();

	look->page = NULL;
	look->waits = look->elsewhere = false;
	look->first = (struct protect_first){.euid = RUNDIR_MY_UID};
	/* Without a line, since only the settings say whether descriptor 2 may be written. */
	if (!s)
		return PROTECT_REFUSED;
	if (!s->place.config[0]) {
		if (!__atomic_exchange_n(&warned, true, __ATOMIC_RELAXED))
			note_line(fd, "no configuration (DFLOCK_CONFIG, ~/.config/dflock.conf, /etc/dflock.conf): "
				      "nothing is protected, locks hold on this machine only");
		return PROTECT_NO;
	}
	return protect_quick_answer(s, fd, look) == PAGE_SAYS_NO ? PROTECT_NO : PROTECT_ASK;
}

enum protect protect_ask(int fd, struct protect_look *look)
{
	const struct settings *s = settings_get();
	struct protect_first first = look->first;
	struct settings_config config;
	const struct page *page;

	if (look->elsewhere)
		return protect_gather_all(fd, &look->by, &page) < 0 ? PROTECT_REFUSED : PROTECT_ASK;
	look->first.euid = RUNDIR_MY_UID; /* when this is called again, time has passed */
	look->first.has_mine = false;
	if (!look->page && (protect_is_kernels(fd) || name_is_none(fd)))
		return PROTECT_NO;
	/* The state of a second ago will not do: to a keeper that knows a later one it would be that of another file. */
	if (!look->page || !first.has_mine || !first.is_new)
		settings_config_now(s, &config);
	if (!look->page && (config.error == ENOENT || config.error == ENOTDIR) && root_was_left(s))
		return protect_ask_root(fd);
	if (protect_gather(s, fd, first.euid, &look->by) < 0)
		return PROTECT_REFUSED;
	if (!look->page)
		return protect_full_look(s, &config, fd, look);
	look->by.mine = first.has_mine ? first.mine : protect_which(s, &config, look->page);
	if (!first.is_new) {
		look->by.mine.id = config.id;
		look->by.mine.young = config.young;
	}
	return PROTECT_ASK;
}

enum protect protect_again(int fd, const struct protect_look *look)
{
	const struct protect_by *by = &look->by;
	const struct page *page;
	uint64_t hash;

	if (protect_refresh(fd, by, &page) < 0)
		return PROTECT_REFUSED;
	switch (protect_consult(page, &by->mine, fd, NULL, true, &hash)) {
	case PAGE_SAYS_YES:
		return PROTECT_ASK;
	case PAGE_SAYS_REFUSE:
		return PROTECT_REFUSED;
	default:
		return PROTECT_NO;
	}
}
