/*
 * Is a descriptor's file protected by the configuration? Decided from the keeper's page, without a question, wherever
 * that is possible, in two steps: protect_look() costs next to nothing; protect_ask() comes before the keeper is asked.
 * Callable wherever flock() is; errno may change.
 */
#ifndef DFLOCK_SHIM_PROTECT_H
#define DFLOCK_SHIM_PROTECT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "wire/msg.h"
#include "wire/page.h"
#include "wire/place.h"

enum protect {
	PROTECT_NO,      /* dflock has no part in the call; also if the kernel will refuse it */
	PROTECT_ASK,     /* protected, or only the keeper can say */
	PROTECT_REFUSED, /* the reason was written, but for protect_look() */
};

/* Which keeper to ask, and how. */
struct protect_by {
	const char *config;        /* the configuration's path; static */
	struct page_config mine;   /* its state, and the path by which the keeper may know it */
	uid_t euid;                /* or RUNDIR_MY_UID */
	char dir[PLACE_DIR_BYTES]; /* the runtime directory; "": there is none */
};

/* What protect_look() has found out, so that the first protect_ask() after it need not. */
struct protect_first {
	int64_t stamp_ns; /* settings_config() */
	uid_t euid;       /* or RUNDIR_MY_UID */
	struct page_config mine;
	bool has_mine;
	bool is_new; /* the configuration was looked at by this protect_look() */
};

struct protect_look {
	/* With PROTECT_ASK: the page that says so, in which the leases of `file` (a regular file or a directory) may be
	 * looked up, if protect_page_is_near(). NULL: there is no such page. */
	const struct page *page;
	bool waits; /* set by the caller before protect_ask(), if the call waits; false after protect_look() */
	bool elsewhere; /* the same, if no path of this process leads to the file: the keeper says what it is, whatever the page says */
	struct leases_file file;
	struct protect_by by; /* filled by protect_ask() */
	bool refused;         /* set if the call fails with EWOULDBLOCK because of on_refused = "busy" */
	bool disclaimed;      /* set if the call succeeded after PROTECT_ASK, and the file is not protected after all */
	struct protect_first first; /* protect.c's */
};

/* Would the kernel refuse a lock on `fd` at once (EBADF)? */
bool protect_kernel_refuses(int fd);
/* The same, or does `fd` refer to something that cannot be protected? */
bool protect_is_kernels(int fd);

/* The first look, without a line. PROTECT_REFUSED: it is too early in the program's start to know anything. */
enum protect protect_look(int fd, struct protect_look *look);

/* look->page is set. Are its namespaces those of this process? Only then do its clock and its pids mean the same here. */
bool protect_page_is_near(const struct protect_look *look);

/* After PROTECT_ASK. If look->page is set, the kernel may still refuse a lock on `fd`: protect_kernel_refuses() must come
 * before this process waits for anything, or starts a keeper. A call that waits is not refused for a configuration that is invalid or missing if the file's rule has
 * on_refused = "wait": no keeper can be started with it, and one can when it is mended. Looks again, at the files as they are now, and fills look->by. */
enum protect protect_ask(int fd, struct protect_look *look);

/* The keeper has said that the file is not protected. What does the page say now about the path that the file has now?
 * PROTECT_NO: the same, or nothing. PROTECT_ASK: it is protected. PROTECT_REFUSED: the reason was written. */
enum protect protect_again(int fd, const struct protect_look *look);

/* For messages: the rule that protects fd's file, as the page shows it, like `tree = "/x"`. False: none does, or the
 * page does not say. */
bool protect_rule(int fd, char *text, size_t size);

/* The on_refused of the rule that protects fd's file, as page_find_rule() says. */
enum wire_on_refused protect_on_refused(int fd);

/* --- what protect.c, protect_page.c and require.c share --- */

/* What was found out about something when the configuration was looked at last, which is at most a second ago. All zero at first. */
struct protect_fact {
	uint32_t seq;
	struct protect_known {
		int64_t stamp_ns;
		uint64_t about, is;
	} known;
};
bool protect_knows(const struct protect_fact *fact, int64_t stamp_ns, uint64_t about, bool *is);
/* Returns `is`. */
bool protect_note(struct protect_fact *fact, int64_t stamp_ns, uint64_t about, bool is);

/* Fills *by, with the page that is in the runtime directory now, or NULL. 0, or -errno after the reason was written. */
int protect_gather_all(int fd, struct protect_by *by, const struct page **page);
/* mapping_refresh(); -errno after the reason was written. */
int protect_refresh(int fd, const struct protect_by *by, const struct page **page);

struct settings;
struct settings_config;

/* False in a chroot or a container, where a path leads to another file than the same path does for the keeper. */
bool protect_same_root(const struct page *page);
/* The configuration as this program and this page (NULL: none) know it. Without a page, a keeper that is started reads
 * the program's own path. */
struct page_config protect_which(const struct settings *s, const struct settings_config *config,
				 const struct page *page);
/* The same for callers that look at the root directory afterwards. */
struct page_config protect_which_here(const struct settings *s, const struct settings_config *config,
				      const struct page *page);
/* Fills *by, except by->mine. 0, or -errno after the reason was written. */
int protect_gather(const struct settings *s, int fd, uid_t euid, struct protect_by *by);

#endif
