/*
 * The shared page, RUNTIME_DIR/page: written by the keeper, mapped read-only by programs.
 *
 * It holds the compiled rules and the identity of the configuration that they came from, so that a program knows
 * without a question that a file is not protected; and the leases that the keeper has (leases.h).
 *
 * The rules are those of the file config_path, whatever its state now. The rules of a file that was changed, is invalid
 * or missing stay in force until the keeper publishes others (keeper/callers/configfile.h). So every program that was
 * told to use config_path goes by them. A program knows that it is such a program if
 *  - the file that it was told to use is in a state that the keeper has seen (`config` or `seen`): then both have the
 *    same file, by whatever path; or
 *  - it was told the same path, and the file is missing or has changed within WIRE_CONFIG_YOUNG_NS.
 * Otherwise it asks the keeper: no keeper has looked at the file since it was changed, or the path leads this program
 * to another file.
 *
 * The file stays when its keeper ends, and the next keeper goes on with it. It is never replaced, never truncated (that
 * would be SIGBUS in programs), and, but for the moment in which the first keeper makes it, PAGE_BYTES long. When it has this
 * size, a struct page of it has its memory (a hole would be SIGBUS in programs when the tmpfs is full).
 *
 * Writing: one keeper at a time (it holds RUNTIME_DIR/keeper.lock). `seq` is odd while the rules change. Reading is
 * safe at any moment of a writer's work: every offset is checked against the page, and a result counts only if `seq`
 * was even, and the same before and after.
 *
 * libc only, no allocation, usable in signal handlers.
 */
#ifndef DFLOCK_WIRE_PAGE_H
#define DFLOCK_WIRE_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/leases.h"
#include "wire/msg.h"

#define PAGE_NAME          "page"
#define PAGE_MAGIC         0x65676170636c6664ull
#define PAGE_VERSION       5
#define PAGE_BYTES         (4u << 20)
#define PAGE_RULES_BYTES   (1u << 20)
#define PAGE_MESSAGE_BYTES 768
#define PAGE_COVERED       256
#define PAGE_COVERED_TYPE  (UINT64_C(1) << 63)

enum page_state {
	PAGE_EMPTY = 0, /* no keeper has written it yet */
	PAGE_RULES,     /* the rules are in force */
	PAGE_INVALID,   /* the file in the state `config` is invalid, and no rules were known before: every lock call is
			   refused, and `message` says why. Only for programs whose file is in exactly this state */
};

/* Rules stand one after the other from `rules` on: each is a struct page_rule, its pattern (resolved, absolute,
 * NUL-terminated), and padding to 8 bytes. */
enum page_rule_kind { PAGE_RULE_PATH = 0, PAGE_RULE_GLOB, PAGE_RULE_TREE, PAGE_RULE_KINDS };
struct page_rule {
	uint32_t bytes;      /* of this record, header and padding included; a multiple of 8 */
	uint16_t kind;       /* enum page_rule_kind */
	uint16_t on_refused; /* enum wire_on_refused */
	char pattern[];
};

struct page {
	uint64_t magic;
	uint32_t version;
	uint32_t seq;
	uint32_t state; /* enum page_state */
	uint32_t rules_bytes;
	struct wire_config_id
		config; /* the file when the rules were read; none: they were read from the keeper's copy */
	uint64_t root_dev, root_ino; /* the keeper's "/": a program with another root directory must ask the keeper */
	uint32_t keeper;             /* its pid: a record lock of the keeper's is a probe, and belongs to no program
					(keeper/kernel/probe.h) */
	uint32_t reserved;
	struct wire_config_id seen; /* the file when the keeper last looked */
	uint64_t config_hash;       /* leases_hash(config_path) */
	uint64_t spare[9];
	char config_path[4096];
	char message[PAGE_MESSAGE_BYTES]; /* PAGE_INVALID: "FILE:LINE: what was expected" */
	_Alignas(8) unsigned char rules[PAGE_RULES_BYTES];
	_Alignas(64) struct leases leases;
	/* Which devices rules have covered since the page began: the last PAGE_COVERED of covered_count (page_covers()). */
	uint32_t covered_count, reserved_too;
	uint64_t covered[PAGE_COVERED];
};
_Static_assert(sizeof(struct page) <= PAGE_BYTES, "the page has room for it all");
_Static_assert(offsetof(struct page, leases) == 1053696 &&
		       sizeof(struct leases) == 128 + LEASES_BUCKETS * LEASES_IN_BUCKET * 64,
	       "32-bit programs see the same");

enum page_answer {
	PAGE_SAYS_NO,      /* not protected */
	PAGE_SAYS_YES,     /* protected */
	PAGE_SAYS_REFUSE,  /* PAGE_INVALID for this configuration: refuse, with `message` */
	PAGE_SAYS_NOTHING, /* empty, of another configuration or version, or written for too long: ask the keeper */
};

/* Which configuration a program was told to use. */
struct page_config {
	struct wire_config_id id; /* the file's state now; none: it is missing or cannot be examined */
	uint64_t path_hash;       /* leases_hash() of its path; 0: the path may lead the keeper to another file */
	bool young;               /* wire_config_is_young() */
};

/* Says whether `path` (resolved, absolute) is protected under the configuration `mine`. With PAGE_SAYS_REFUSE,
 * `message` (may be NULL) gets the text, printable. */
enum page_answer page_ask(const struct page *page, const struct page_config *mine, const char *path,
			  char message[PAGE_MESSAGE_BYTES]);

/* The rule that protects `path`, or did when the page had rules of this configuration last, whatever has become of the file since:
 * it is asked for a lock that is refused in any case, and for messages. The pattern may be cut off, or mixed from two rules if the
 * page changes meanwhile. False: there is none. */
struct page_found {
	enum page_rule_kind kind;
	enum wire_on_refused on_refused;
	char pattern[128];
};
bool page_find_rule(const struct page *page, const struct page_config *mine, const char *path,
		    struct page_found *found);

/* page_ask() for the directory `path` ("": the root) and all paths below it. PAGE_SAYS_NO: no rule can match any of them.
 * PAGE_SAYS_YES: a rule may. */
enum page_answer page_ask_below(const struct page *page, const struct page_config *mine, const char *path);

/*
 * Has a rule covered files of this device (st_dev) since the page began? The path of a descriptor whose mount is gone
 * (umount -l) begins at the root of that mount, and says nothing. PAGE_COVERED_TYPE | f_type of statfs(2): the same for a type
 * of file system whose files have device numbers that no mount table shows (btrfs, overlay). PAGE_COVERED_TYPE alone:
 * for any such type.
 */
bool page_covers(const struct page *page, uint64_t dev);
/* The keeper's side: the device is covered from now on. */
void page_cover(struct page *page, uint64_t dev);

/* Does this rule match this path? Pure. `pattern` is resolved and absolute. PATH: equal. GLOB: `*`, `?`, `[a-z]`,
 * `[!x]`, `\x`; none of them matches '/', and only a literal dot matches the dot at the beginning of a name. TREE:
 * every path below the directory, at any depth. */
bool page_rule_matches(enum page_rule_kind kind, const char *pattern, const char *path);

/* The keeper's side: appends a rule at rules[*used], and adds its bytes to *used. 0, or -ENOSPC. */
int page_rule_append(unsigned char *rules, size_t size, size_t *used, enum page_rule_kind kind,
		     enum wire_on_refused on_refused, const char *pattern);

#endif
