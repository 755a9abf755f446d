/*
 * See root.h. Noted before chroot(): the path of the new root, as the keeper sees it; the page, which stays mapped; and
 * which of the open files are protected. Afterwards:
 *
 * - with a /proc, the keeper's path of a file is that path and then the name that the kernel shows here;
 * - without one, a file is one of those that were open, or it is somewhere below that path (or came through a socket:
 * then it is treated as if it were below that path). If no rule can match a path there, it is not protected.
 *
 * A note is found by the identity of the root directory, since a vfork child that calls chroot() writes into the memory
 * of its parent, whose root is another one.
 */
#include "shim/root.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "shim/mapping.h"
#include "shim/name.h"
#include "shim/protect.h"
#include "shim/real.h"
#include "shim/recent.h"
#include "wire/sys.h"
#include "wire/rundir.h"
#include "wire/seqcopy.h"
#include "wire/text.h"

#define ROOTS     4
#define FILES_MAX 32

struct root {
	dev_t dev;
	ino_t ino;
	const struct page *page;
	char path[PATH_MAX]; /* without a slash at its end: "" is the keeper's own root */
	bool more; /* not all protected files that were open are noted: they were too many, or could not be listed */
	unsigned int count;
	struct {
		dev_t dev;
		ino_t ino;
	} files[FILES_MAX];
};

static struct root roots[ROOTS];
static unsigned int roots_claimed;
static const struct root *roots_published[ROOTS];

static bool root_is(const struct root *root, const struct stat *st)
{
	return root->dev == st->st_dev && root->ino == st->st_ino;
}

static const struct root *root_find(const struct stat *st)
{
	for (int i = ROOTS - 1; i >= 0; i--) {
		const struct root *root = __atomic_load_n(&roots_published[i], __ATOMIC_ACQUIRE);

		if (root && root_is(root, st))
			return root;
	}
	return NULL;
}

bool root_was_left(const struct settings *s)
{
	struct stat st;

	return s->has_root && sys_stat("/", &st) == 0 && (st.st_dev != s->root_dev || st.st_ino != s->root_ino);
}

static enum page_answer root_by_page(const struct root *root, const char *name, bool below)
{
	struct page_config theirs = {0};
	char path[PATH_MAX];
	enum page_answer answer;

	if (!root->page)
		return PAGE_SAYS_NOTHING;
	if (!text_print(path, sizeof(path), "%s%s", root->path, name))
		return PAGE_SAYS_NO; /* no rule is as long */
	seqcopy_words(&theirs.id, &root->page->config, sizeof(theirs.id));
	answer = below ? page_ask_below(root->page, &theirs, path) : page_ask(root->page, &theirs, path, NULL);
	return answer == PAGE_SAYS_REFUSE ? PAGE_SAYS_NOTHING : answer;
}

enum page_answer root_ask(int fd, const char *name)
{
	const struct root *root;
	struct stat st;

	if (sys_stat("/", &st) < 0 || !(root = root_find(&st)))
		return PAGE_SAYS_NOTHING;
	if (name && name[0] == '/')
		return root_by_page(root, name, false);
	if (root->more || sys_fstat(fd, &st) < 0)
		return PAGE_SAYS_NOTHING;
	for (unsigned int i = 0; i < root->count; i++)
		if (root->files[i].dev == st.st_dev && root->files[i].ino == st.st_ino)
			return PAGE_SAYS_YES;
	return root_by_page(root, "", true) == PAGE_SAYS_NO ? PAGE_SAYS_NO : PAGE_SAYS_NOTHING;
}

/* --- before the call --- */

static void root_note_file(struct root *root, int fd)
{
	struct protect_look look;
	struct stat st;

	if (protect_is_kernels(fd) || protect_look(fd, &look) == PROTECT_NO || sys_fstat(fd, &st) < 0)
		return;
	if (root->count == FILES_MAX) {
		root->more = true;
		return;
	}
	root->files[root->count].dev = st.st_dev;
	root->files[root->count++].ino = st.st_ino;
}

static int root_fd_number(const char *name)
{
	int n = 0;

	for (; *name >= '0' && *name <= '9' && n < INT_MAX / 10; name++)
		n = 10 * n + (*name - '0');
	return *name ? -1 : n;
}

static void root_note_files(struct root *root)
{
	_Alignas(struct sys_dirent) char buf[2048];
	long dir = sys(openat, AT_FDCWD, "/proc/thread-self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC), n = dir;

	while (dir >= 0 && (n = sys(getdents64, dir, buf, sizeof(buf))) > 0) {
		for (long at = 0; at < n;) {
			const struct sys_dirent *e = (const struct sys_dirent *)(buf + at);
			int fd = root_fd_number(e->name);

			if (fd >= 0 && fd != dir)
				root_note_file(root, fd);
			at += e->length;
		}
	}
	root->more |= n < 0;
	if (dir >= 0)
		sys(close, dir);
}

/* Notes the path and the identity of the new root. False: its path cannot be known. */
static bool root_note_path(struct root *root, const char *path, const struct root *now)
{
	long fd = sys(openat, AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC), n = -1;
	char name[PATH_MAX];
	struct stat st;

	if (fd < 0)
		return false;
	if (sys_fstat((int)fd, &st) == 0)
		n = name_link((int)fd, name, sizeof(name) - 1);
	sys(close, fd);
	if (n <= 0 || n == sizeof(name) - 1 || name[0] != '/')
		return false;
	name[n] = '\0';
	root->dev = st.st_dev;
	root->ino = st.st_ino;
	return text_print(root->path, sizeof(root->path), "%s%s", now ? now->path : "", n > 1 ? name : "");
}

static const struct page *root_find_page(const struct settings *s)
{
	char dir[PLACE_DIR_BYTES], why[256];
	const struct page *page = NULL;
	uid_t euid = sys_geteuid(), owner;

	if (rundir_find(&s->place, euid, dir, why, sizeof(why)) < 0 ||
	    mapping_refresh(dir, euid, &page, why, sizeof(why)) < 0 || !page)
		page = mapping_find(&euid, &owner);
	return page;
}

int root_change(const char *path)
{
	const struct settings *s = settings_get();
	const struct root *now = NULL;
	struct root *root = NULL;
	unsigned int mine = ROOTS;
	const int saved = errno;
	struct stat st;
	bool left;
	int ret;

	if (!s || !s->place.config[0])
		return real_chroot(path);
	left = root_was_left(s);
	if (left && sys_stat("/", &st) == 0)
		now = root_find(&st);
	if (!left || now)
		mine = __atomic_fetch_add(&roots_claimed, 1, __ATOMIC_RELAXED);
	if (mine < ROOTS) {
		root = &roots[mine];
		/* At a second chroot(), the files that were open at the first one count. Those that were opened in between
		 * and lie outside of the next root do not. */
		if (now)
			*root = *now;
		else
			root->page = root_find_page(s);
		if (!root_note_path(root, path, now))
			root = NULL;
		else if (!now)
			root_note_files(root);
	}
	errno = saved;
	ret = real_chroot(path);
	if (ret == 0)
		recent_forget();
	if (ret == 0 && root)
		__atomic_store_n(&roots_published[mine], root, __ATOMIC_RELEASE);
	return ret;
}
