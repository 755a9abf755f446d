/*
 * Is a descriptor's file protected by the configuration? Decided from the keeper's page without asking
 * anybody, wherever that can be done, in two steps: protect_look() costs next to nothing; protect_ask() comes before
 * the keeper is asked. Callable wherever flock() is.
 */
#ifndef DFLOCK_SHIM_PROTECT_H
#define DFLOCK_SHIM_PROTECT_H

#include <stdbool.h>
#include <sys/types.h>

#include "wire/msg.h"
#include "wire/page.h"
#include "wire/place.h"

enum protect {
	PROTECT_NO,      /* the call is the kernel's alone; also where the kernel will refuse it */
	PROTECT_ASK,     /* protected, or only the keeper can say */
	PROTECT_REFUSED, /* the reason was written */
};

/* Whom to ask. */
struct protect_by {
	const char *config; /* the configuration's path; static */
	struct page_config mine; /* its state, and what the keeper may know it by */
	uid_t euid;
	char dir[PLACE_DIR_BYTES]; /* runtime directory; "": there is none yet */
};

struct protect_look {
	/* With PROTECT_ASK: the page that says so, in which the leases of the file, a regular one or a directory, may
	 * be looked up; NULL: there is none, or its namespaces are not this process's. */
	const struct page *page;
	struct leases_file file;
	struct protect_by by; /* filled by protect_ask() */
};

/* Would the kernel refuse a lock on fd at once, or is it something that cannot be protected? */
bool protect_is_kernels(int fd);

enum protect protect_look(int fd, struct protect_look *look);

/* After PROTECT_ASK: whether it is so, as things are now. */
enum protect protect_ask(int fd, struct protect_look *look);

/* The keeper has said that the file is not protected. What does the page say now, of the path that the file has now?
 * PROTECT_NO: the same, or nothing. PROTECT_ASK: it is protected. PROTECT_REFUSED as above. */
enum protect protect_again(int fd, const struct protect_look *look);

#endif
