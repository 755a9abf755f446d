/* What protect.h says beside lock calls: for the start of a job, for messages, and for calls that are refused. */
#include <limits.h>

#include "shim/mapping.h"
#include "shim/name.h"
#include "shim/note.h"
#include "shim/protect.h"
#include "shim/settings.h"
#include "wire/sys.h"
#include "wire/text.h"

/* The page that is in the runtime directory now, or NULL; *by is filled for it. 0, or -errno after a line. */
static int protect_find_page(struct protect_by *by, const struct page **page)
{
	const struct settings *s = settings_get();
	struct settings_config config;
	char why[512];
	int ret = protect_gather(s, NOTE_JOB, sys_geteuid(), by);

	if (ret < 0)
		return ret;
	ret = mapping_refresh(by->dir, by->euid, page, why, sizeof(why));
	if (ret < 0) {
		note_refused(NOTE_JOB, "%s", why);
		return ret;
	}
	settings_config_now(s, &config);
	by->mine = protect_which(s, &config, *page);
	return 0;
}

int protect_start(struct protect_by *by)
{
	const struct page *page;

	return protect_find_page(by, &page);
}

enum page_answer protect_path(const char *path)
{
	const struct page *page;
	struct protect_by by;

	if (protect_find_page(&by, &page) < 0 || !page || !protect_same_root(page))
		return PAGE_SAYS_NOTHING;
	return page_ask(page, &by.mine, path, NULL);
}

/* The page that this process knows, and the path of fd's file in it. NULL: there is none, or none that speaks of it. */
static const struct page *protect_known_page(int fd, struct page_config *mine, char name[PATH_MAX])
{
	const struct settings *s = settings_get();
	struct settings_config config;
	const struct page *page;
	uid_t owner;

	page = s && s->place.config[0] ? mapping_find(sys_geteuid(), &owner) : NULL;
	if (!page || !protect_same_root(page) || name_read(fd, name) != 0)
		return NULL;
	settings_config(s, &config);
	*mine = protect_which(s, &config, page);
	return page;
}

enum wire_on_refused protect_on_refused(int fd)
{
	char name[PATH_MAX];
	struct page_config mine;
	const struct page *page = protect_known_page(fd, &mine, name);

	return page ? page_on_refused(page, &mine, name) : WIRE_ON_REFUSED_REFUSE;
}

bool protect_rule(int fd, char *text, size_t size)
{
	static const char *const kinds[PAGE_RULE_KINDS] = {"path", "glob", "tree"};
	char name[PATH_MAX], pattern[128];
	struct page_config mine;
	const struct page *page = protect_known_page(fd, &mine, name);
	enum page_rule_kind kind;

	if (!page || !page_find_rule(page, &mine, name, &kind, pattern, sizeof(pattern)))
		return false;
	text_print(text, size, "%s = \"%s\"", kinds[kind], pattern);
	return true;
}
