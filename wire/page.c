/*
 * The matcher works on memory that another process may be changing. It reads a pattern byte by byte with relaxed atomic
 * loads (a compiler may read a plain byte twice, check the first value and use the second), never past the record's
 * end, and ends after a bounded number of steps, whatever it reads.
 */
#include "wire/page.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "wire/sys.h"

/* How often a reader tries again while the page is being written; a writer needs less than a millisecond. Whoever asks whether a path is
 * protected asks the keeper next. Of a call that is refused nobody else knows the rule: then a second is given to a writer that does not get
 * a processor, or has died and is started again. */
#define ASK_TRIES  64
#define FIND_TRIES 1000
#define FIND_NS    1000000

struct pattern {
	const char *bytes;
	size_t room; /* the pattern ends here, or at an earlier NUL */
};

static unsigned char pattern_byte(const struct pattern *p, size_t i)
{
	return i < p->room ? (unsigned char)__atomic_load_n(&p->bytes[i], __ATOMIC_RELAXED) : 0;
}

static bool is_leading_dot(const char *path, size_t s)
{
	return path[s] == '.' && (s == 0 || path[s - 1] == '/');
}

/* The byte of a bracket expression at *i, which moves on to the last byte read. 0: the pattern, or this name, ends. */
static unsigned char bracket_byte(const struct pattern *p, size_t *i)
{
	unsigned char c = pattern_byte(p, *i);

	if (c == '\\' && pattern_byte(p, *i + 1))
		c = pattern_byte(p, ++*i);
	return c == '/' ? 0 : c;
}

/* The length of the bracket expression at `from`; *hit: c is in it. 0: it is not closed, so '[' stands for itself. */
static size_t bracket(const struct pattern *p, size_t from, unsigned char c, bool *hit)
{
	size_t i = from + 1;
	bool negated = pattern_byte(p, i) == '!' || pattern_byte(p, i) == '^';
	bool found = false;

	i += negated;
	for (size_t first = i; i == first || pattern_byte(p, i) != ']'; i++) {
		unsigned char low = bracket_byte(p, &i), high = low;

		if (pattern_byte(p, i + 1) == '-' && pattern_byte(p, i + 2) != ']') {
			i += 2;
			high = bracket_byte(p, &i);
		}
		if (!low || !high)
			return 0;
		if (low <= c && c <= high)
			found = true;
	}
	*hit = found != negated;
	return i + 1 - from;
}

/* The pattern at i, where no '*' is, and the byte path[s]: how many bytes of the pattern match it. 0: it does not
 * match. */
static size_t match_one(const struct pattern *p, size_t i, const char *path, size_t s)
{
	unsigned char c = pattern_byte(p, i), byte = (unsigned char)path[s];
	bool hit;

	if (c == '\\' && pattern_byte(p, i + 1))
		return pattern_byte(p, i + 1) == byte ? 2 : 0;
	if (c == '?')
		return byte != '/' && !is_leading_dot(path, s);
	if (c == '[') {
		size_t n = bracket(p, i, byte, &hit);

		if (n)
			return hit && byte != '/' && !is_leading_dot(path, s) ? n : 0;
	}
	return c == byte;
}

/* Only the last '*' is ever tried again, as in every glob, and only up to the next '/': this takes at most as many
 * steps as the length of the pattern times the length of the path. (After a '/' was matched, another try cannot give a
 * new result.) */
static bool glob_matches(const struct pattern *p, const char *path)
{
	size_t i = 0, s = 0;
	size_t star = 0,
	       star_s = 0; /* the pattern after the last '*' (0: none), and where in the path its match ends */

	for (;;) {
		size_t n;

		if (pattern_byte(p, i) == '*') {
			if (is_leading_dot(path, s))
				return false;
			star = ++i;
			star_s = s;
			continue;
		}
		if (!path[s])
			return !pattern_byte(p, i);
		n = match_one(p, i, path, s);
		if (n) {
			i += n;
			s++;
		} else if (star && path[star_s] != '/') {
			s = ++star_s;
			i = star;
		} else {
			return false;
		}
	}
}

static bool path_matches(const struct pattern *p, const char *path)
{
	for (size_t i = 0; pattern_byte(p, i) == (unsigned char)path[i]; i++)
		if (!path[i])
			return true;
	return false;
}

static bool tree_matches(const struct pattern *p, const char *path)
{
	size_t i = 0;
	unsigned char c;

	for (; (c = pattern_byte(p, i)); i++)
		if (c != (unsigned char)path[i])
			return false;
	if (i == 0)
		return false;
	if (path[i - 1] != '/' && path[i++] != '/')
		return false;
	return path[i] != '\0';
}

static bool rule_matches(uint32_t kind, const struct pattern *p, const char *path)
{
	switch (kind) {
	case PAGE_RULE_PATH:
		return path_matches(p, path);
	case PAGE_RULE_GLOB:
		return glob_matches(p, path);
	default:
		return tree_matches(p, path);
	}
}

/* May the rule match the directory `path` or a path below it? True for every pattern that agrees up to its first
 * wildcard. */
static bool rule_may_match_below(uint32_t kind, const struct pattern *p, const char *path)
{
	unsigned char c;

	for (size_t i = 0;; i++) {
		c = pattern_byte(p, i);
		if (kind == PAGE_RULE_GLOB && (c == '*' || c == '?' || c == '[' || c == '\\'))
			return true;
		if (!path[i]) /* the pattern goes on below `path`, or ends there */
			return !c || c == '/' || (i > 0 && path[i - 1] == '/');
		if (!c)
			return kind == PAGE_RULE_TREE && (path[i] == '/' || (i > 0 && path[i - 1] == '/'));
		if (c != (unsigned char)path[i])
			return false;
	}
}

bool page_rule_matches(enum page_rule_kind kind, const char *pattern, const char *path)
{
	struct pattern p = {pattern, strlen(pattern)};

	return rule_matches(kind, &p, path);
}

int page_rule_append(unsigned char *rules, size_t size, size_t *used, enum page_rule_kind kind,
		     enum wire_on_refused on_refused, const char *pattern)
{
	size_t len = strlen(pattern);
	size_t bytes = (sizeof(struct page_rule) + len + 1 + 7) & ~(size_t)7;
	struct page_rule *rule = (struct page_rule *)(rules + *used);

	if (bytes > size - *used)
		return -ENOSPC;
	memset(rule, 0, bytes);
	rule->bytes = (uint32_t)bytes;
	rule->kind = (uint16_t)kind;
	rule->on_refused = (uint16_t)on_refused;
	memcpy(rule->pattern, pattern, len);
	*used += bytes;
	return 0;
}

static uint32_t page_load(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static uint16_t page_load_half(const uint16_t *half)
{
	return __atomic_load_n(half, __ATOMIC_RELAXED);
}

/* Word by word: an atomic load of 64 bits would need libatomic on some 32-bit machines. */
static bool same_words(const void *a, const void *b, size_t size)
{
	const uint32_t *x = a, *y = b;

	for (size_t i = 0; i < size / sizeof(*x); i++)
		if (page_load(&x[i]) != page_load(&y[i]))
			return false;
	return true;
}

static void copy_message(const struct page *page, char message[PAGE_MESSAGE_BYTES])
{
	struct pattern text = {page->message, PAGE_MESSAGE_BYTES - 1};
	size_t i = 0;
	unsigned char c;

	/* It is for a terminal. */
	for (; (c = pattern_byte(&text, i)); i++)
		message[i] = (char)(c < ' ' || c == 0x7f ? '?' : c);
	message[i] = '\0';
}

typedef bool match_fn(uint32_t kind, const struct pattern *p, const char *path);

/* With PAGE_SAYS_YES, *found is the rule (found may be NULL). */
static enum page_answer page_ask_rules(const struct page *page, const char *path, match_fn *match,
				       const struct page_rule **found)
{
	size_t end = page_load(&page->rules_bytes);

	if (end > PAGE_RULES_BYTES)
		return PAGE_SAYS_NOTHING;
	for (size_t from = 0; from < end;) {
		const struct page_rule *rule = (const struct page_rule *)(page->rules + from);
		size_t bytes;
		uint32_t kind;

		/* A multiple of 8 below PAGE_RULES_BYTES: the record's head is in the page, whatever `end` is. */
		bytes = page_load(&rule->bytes);
		kind = page_load_half(&rule->kind);
		if (bytes <= sizeof(*rule) || bytes % 8 || bytes > end - from || kind >= PAGE_RULE_KINDS)
			return PAGE_SAYS_NOTHING;
		if (match(kind, &(struct pattern){rule->pattern, bytes - sizeof(*rule)}, path)) {
			if (found)
				*found = rule;
			return PAGE_SAYS_YES;
		}
		from += bytes;
	}
	return PAGE_SAYS_NO;
}

static bool page_speaks_of(const struct page *page, const struct page_config *mine)
{
	bool none = wire_config_is_none(&mine->id);

	if (!none && same_words(&page->config, &mine->id, sizeof(mine->id)))
		return true;
	if (page_load(&page->state) == PAGE_INVALID)
		return false;
	if (!none && same_words(&page->seen, &mine->id, sizeof(mine->id)))
		return true;
	return (none || mine->young) && mine->path_hash &&
	       same_words(&page->config_hash, &mine->path_hash, sizeof(mine->path_hash));
}

struct page_question {
	const struct page_config *mine;
	const char *path;
	match_fn *match;
	const struct page_rule **found; /* not NULL: of the rules that stand there, whether or not they are in force */
	char *message;                  /* PAGE_MESSAGE_BYTES; may be NULL */
};

static enum page_answer page_ask_once(const struct page *page, const struct page_question *q)
{
	if (q->found)
		return q->mine->path_hash && same_words(&page->config_hash, &q->mine->path_hash, sizeof(uint64_t))
			       ? page_ask_rules(page, q->path, q->match, q->found)
			       : PAGE_SAYS_NOTHING;
	if (!page_speaks_of(page, q->mine))
		return PAGE_SAYS_NOTHING;
	switch (page_load(&page->state)) {
	case PAGE_RULES:
		return page_ask_rules(page, q->path, q->match, q->found);
	case PAGE_INVALID:
		if (q->message)
			copy_message(page, q->message);
		return PAGE_SAYS_REFUSE;
	default:
		return PAGE_SAYS_NOTHING;
	}
}

static void page_pause(const struct page_question *q)
{
	if (q->found)
		sys(nanosleep, &(struct timespec){.tv_nsec = FIND_NS}, NULL);
	else
		sched_yield();
}

static enum page_answer page_ask_with(const struct page *page, const struct page_question *q)
{
	static const uint64_t magic = PAGE_MAGIC;

	for (int tries = 0; tries < (q->found ? FIND_TRIES : ASK_TRIES); tries++) {
		uint32_t seq = __atomic_load_n(&page->seq, __ATOMIC_ACQUIRE);
		enum page_answer answer = PAGE_SAYS_NOTHING;

		if (seq & 1) {
			page_pause(q); /* mutant: page-pause */
			continue;
		}
		if (same_words(&page->magic, &magic, sizeof(magic)) && page_load(&page->version) == PAGE_VERSION)
			answer = page_ask_once(page, q);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (page_load(&page->seq) == seq)
			return answer;
	}
	return PAGE_SAYS_NOTHING;
}

enum page_answer page_ask(const struct page *page, const struct page_config *mine, const char *path,
			  char message[PAGE_MESSAGE_BYTES])
{
	return page_ask_with(
		page, &(struct page_question){.mine = mine, .path = path, .match = rule_matches, .message = message});
}

bool page_find_rule(const struct page *page, const struct page_config *mine, const char *path, struct page_found *found)
{
	const struct page_rule *rule;
	const struct page_question q = {.mine = mine, .path = path, .match = rule_matches, .found = &rule};
	struct pattern text;
	size_t i = 0;

	if (page_ask_with(page, &q) != PAGE_SAYS_YES)
		return false;
	found->kind = page_load_half(&rule->kind);
	found->on_refused = page_load_half(&rule->on_refused);
	if (found->kind >= PAGE_RULE_KINDS || found->on_refused >= WIRE_ON_REFUSED_VALUES)
		return false;
	text = (struct pattern){rule->pattern, (size_t)((const char *)page + sizeof(*page) - rule->pattern)};
	for (unsigned char c; i + 1 < sizeof(found->pattern) && (c = pattern_byte(&text, i)); i++)
		found->pattern[i] = (char)c;
	found->pattern[i] = '\0';
	return true;
}

enum page_answer page_ask_below(const struct page *page, const struct page_config *mine, const char *path)
{
	return page_ask_with(page, &(struct page_question){.mine = mine, .path = path, .match = rule_may_match_below});
}

bool page_covers(const struct page *page, uint64_t dev)
{
	const uint32_t count = __atomic_load_n(&page->covered_count, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < count && i < PAGE_COVERED; i++)
		if (same_words(&page->covered[i], &dev, sizeof(dev)))
			return true;
	return false;
}

void page_cover(struct page *page, uint64_t dev)
{
	if (page_covers(page, dev))
		return;
	page->covered[page->covered_count % PAGE_COVERED] = dev;
	__atomic_store_n(&page->covered_count, page->covered_count + 1, __ATOMIC_RELEASE);
}
