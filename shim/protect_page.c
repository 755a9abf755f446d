/* What protect.h says of a page, and of the configuration that this program has in common with it. */
#include <limits.h>
#include <string.h>

#include "shim/mapping.h"
#include "shim/name.h"
#include "shim/note.h"
#include "shim/protect.h"
#include "shim/settings.h"
#include "wire/rundir.h"
#include "wire/seqcopy.h"
#include "wire/sys.h"
#include "wire/text.h"

bool protect_knows(const struct protect_fact *fact, int64_t stamp_ns, uint64_t about, bool *is)
{
	struct protect_known known;

	if (!seqcopy_read(&fact->seq, &known, &fact->known, sizeof(known)) || known.stamp_ns != stamp_ns ||
	    known.about != about)
		return false;
	*is = known.is;
	return true;
}

bool protect_note(struct protect_fact *fact, int64_t stamp_ns, uint64_t about, bool is)
{
	const struct protect_known known = {.stamp_ns = stamp_ns, .about = about, .is = is};

	seqcopy_write(&fact->seq, &fact->known, &known, sizeof(known));
	return is;
}

int protect_refresh(int fd, const struct protect_by *by, const struct page **page)
{
	char why[512];
	int ret = mapping_refresh(by->dir, by->euid, page, why, sizeof(why));

	if (ret < 0)
		note_refused(fd, "%s", why);
	return ret;
}

bool protect_same_root(const struct page *page)
{
	struct stat st;

	return sys_stat("/", &st) == 0 && st.st_dev == page->root_dev && st.st_ino == page->root_ino;
}

/* Cuts `path` at its last slash, examines the directory before it, and sets *name to what follows. */
static bool examine_directory(char *path, char **name, struct stat *st)
{
	char *slash = strrchr(path, '/');

	if (!slash || sys_stat(slash == path ? "/" : (*slash = '\0', path), st) < 0)
		return false;
	*name = slash + 1;
	return true;
}

/* Does the page's path lead to the same configuration as the program's? Yes if both lead to one file now, or to one
 * name in one directory, which is so also while the file is missing or is being replaced. Not inlined: a signal stack
 * may be small. */
static __attribute__((noinline)) bool protect_same_file(const struct page *page, uint64_t page_hash, const char *mine)
{
	char path[PATH_MAX], *name;
	struct stat st[2];

	_Static_assert(sizeof(path) == sizeof(page->config_path), "any path fits");
	seqcopy_words(path, page->config_path, sizeof(path));
	path[sizeof(path) - 1] = '\0';
	/* The keeper may be writing the path: only the one that has this hash counts. */
	if (leases_hash(path) != page_hash)
		return false;
	if (sys_stat(path, &st[0]) == 0 && sys_stat(mine, &st[1]) == 0 && st[0].st_dev == st[1].st_dev &&
	    st[0].st_ino == st[1].st_ino)
		return true;
	if (!examine_directory(path, &name, &st[0]) || strcmp(name, strrchr(mine, '/') + 1) != 0)
		return false;
	strcpy(path, mine);
	return examine_directory(path, &name, &st[1]) && st[0].st_dev == st[1].st_dev && st[0].st_ino == st[1].st_ino;
}

/* The hash of the path by which the page knows this program's configuration, also if that is another path than the
 * program's; looked up once a second. If the page has another configuration: the hash of the program's own path. 0: the root
 * directory is not the page's, and the paths are not the same. */
static uint64_t protect_known_by(const struct settings *s, const struct page *page, int64_t stamp_ns)
{
	static struct protect_fact fact;
	uint64_t theirs;
	bool same;

	seqcopy_words(&theirs, &page->config_hash, sizeof(theirs));
	if (theirs == s->config_hash)
		return theirs;
	if (!protect_same_root(page))
		return 0;
	if (!protect_knows(&fact, stamp_ns, theirs, &same))
		same = protect_note(&fact, stamp_ns, theirs, protect_same_file(page, theirs, s->place.config));
	return same ? theirs : s->config_hash;
}

struct page_config protect_which_here(const struct settings *s, const struct settings_config *config,
				      const struct page *page)
{
	return (struct page_config){.id = config->id,
				    .young = config->young,
				    .path_hash = page ? protect_known_by(s, page, config->stamp_ns) : s->config_hash};
}

struct page_config protect_which(const struct settings *s, const struct settings_config *config,
				 const struct page *page)
{
	struct page_config mine = protect_which_here(s, config, page);

	if (page && !protect_same_root(page))
		mine.path_hash = 0;
	return mine;
}

int protect_gather_all(int fd, struct protect_by *by, const struct page **page)
{
	const struct settings *s = settings_get();
	struct settings_config config;
	int ret = protect_gather(s, fd, sys_geteuid(), by);

	if (ret == 0)
		ret = protect_refresh(fd, by, page);
	if (ret < 0)
		return ret;
	settings_config_now(s, &config);
	by->mine = protect_which(s, &config, *page);
	return 0;
}

/* The rule of fd's file in the page that this process knows. */
static bool protect_find_rule(int fd, struct page_found *found)
{
	const struct settings *s = settings_get();
	uid_t euid = RUNDIR_MY_UID, owner;
	struct settings_config config;
	struct page_config mine;
	const struct page *page;
	char name[PATH_MAX];

	page = s && s->place.config[0] ? mapping_find(&euid, &owner) : NULL;
	if (!page || !protect_same_root(page) || name_read(fd, name) != 0)
		return false;
	settings_config(s, &config);
	mine = protect_which(s, &config, page);
	return page_find_rule(page, &mine, name, found);
}

enum wire_on_refused protect_on_refused(int fd)
{
	struct page_found found;

	return protect_find_rule(fd, &found) ? found.on_refused : WIRE_ON_REFUSED_REFUSE;
}

bool protect_rule(int fd, char *text, size_t size)
{
	static const char *const kinds[PAGE_RULE_KINDS] = {"path", "glob", "tree"};
	struct page_found found;

	return protect_find_rule(fd, &found) && text_print(text, size, "%s = \"%s\"", kinds[found.kind], found.pattern);
}
