#include "config/internal.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct rule_values {
	struct rule rule;
	const char *path, *tree, *name, *store, *redis_key, *redis_key_format;
};

static const char *const unstoppable_words[] = {"warn", "refuse", NULL};

const struct setting_row config_rule_rows[] = {
	{"path", SETTING_STRING, offsetof(struct rule_values, path), .with = NULL},
	{"tree", SETTING_STRING, offsetof(struct rule_values, tree), .with = NULL},
	{"name", SETTING_STRING, offsetof(struct rule_values, name), .with = NULL},
	{"store", SETTING_STRING, offsetof(struct rule_values, store), .with = NULL},
	{"on_lost", SETTING_WORD, offsetof(struct rule_values, rule.on_lost), .words = settings_on_lost},
	{"on_refused", SETTING_WORD, offsetof(struct rule_values, rule.on_refused), .words = settings_on_refused},
	{"unstoppable", SETTING_WORD, offsetof(struct rule_values, rule.refuse_unstoppable),
	 .words = unstoppable_words},
	{"at_least_ms", SETTING_NUMBER, offsetof(struct rule_values, rule.at_least_ms), .min = 0,
	 .max = CONFIG_RULE_MAX_MS},
	{"warn_after_ms", SETTING_NUMBER, offsetof(struct rule_values, rule.warn_after_ms), .min = 0,
	 .max = CONFIG_RULE_MAX_MS},
	{"kill_after_ms", SETTING_NUMBER, offsetof(struct rule_values, rule.kill_after_ms), .min = 0,
	 .max = CONFIG_RULE_MAX_MS},
	{"redis_key", SETTING_STRING, offsetof(struct rule_values, redis_key), .with = NULL},
	{"redis_key_format", SETTING_STRING, offsetof(struct rule_values, redis_key_format), .with = "redis_key"},
	{"wait_warn_ms", SETTING_NUMBER, offsetof(struct rule_values, rule.wait_warn_ms), .min = 0,
	 .max = CONFIG_DAY_MS},
	{.name = NULL},
};

/* The end of the bracket expression at p; or NULL, and *wrong says what is wrong. */
static const char *skip_bracket(const char *p, const char **wrong)
{
	p++;
	p += *p == '!' || *p == '^';
	for (const char *first = p; p == first || *p != ']'; p++) {
		if (*p == '[' && (p[1] == ':' || p[1] == '.' || p[1] == '=')) {
			*wrong = "classes such as [:alpha:] are not known; expected letters and ranges such as [a-z]";
			return NULL;
		}
		if (*p == '\\' && p[1])
			p++;
		if (!*p || *p == '/') {
			*wrong = "a [ has no ] before the next /; expected both, or \\\\[ for the bracket itself";
			return NULL;
		}
	}
	return p;
}

static const char *check_glob(const char *p)
{
	const char *wrong = NULL;

	for (; *p; p++) {
		if (*p == '[') {
			p = skip_bracket(p, &wrong);
			if (!p)
				return wrong;
		} else if (*p == '*' && p[1] == '*') {
			return "** is not known: * stands for characters within one name, never for a /; expected one * for each "
			       "directory, or tree for everything below one";
		} else if (*p == '\\' && !*++p) {
			return "it ends with a backslash; expected the character that it makes plain";
		}
	}
	return NULL;
}

/* The length of the fixed part: the directory before the first name that has a wildcard or a backslash. */
static size_t fixed_part(const char *glob)
{
	size_t len = strcspn(glob, "*?[\\");

	while (glob[len] != '/')
		len--;
	return len;
}

/* `dir` with its wildcard characters made plain (a link may lead to any name), and the rest of the pattern. */
static char *glob_pattern(const char *dir, const char *rest)
{
	char *pattern = malloc(2 * strlen(dir) + strlen(rest) + 1), *to = pattern;

	if (!pattern)
		return NULL;
	for (; *dir; dir++) {
		if (strchr("*?[\\", *dir))
			*to++ = '\\';
		*to++ = *dir;
	}
	strcpy(to, rest);
	return pattern;
}

/* Fills the rule from the normalised path `as_written`, which changes; its first fixed_len bytes are the fixed part.
 * `name`: the rule's, or NULL. */
static int compile_rule(const struct config_reading *r, struct rule *rule, char *as_written, size_t fixed_len,
			const char *name)
{
	char rest[PATH_MAX], resolved[PATH_MAX];
	struct stat st;
	int ret;

	snprintf(rest, sizeof(rest), "%s", as_written + fixed_len);
	as_written[fixed_len] = '\0';
	ret = resolve_path(fixed_len ? as_written : "/", resolved);
	if (ret < 0)
		return reading_fail(r, rule->line, "%.200s cannot be resolved: %s", as_written, strerror(-ret));
	if (rule->kind == PAGE_RULE_TREE && stat(resolved, &st) == 0 && !S_ISDIR(st.st_mode))
		return reading_fail(r, rule->line, "tree %.200s is not a directory; expected path", as_written);
	/* The root is the only directory that ends with a slash, and the rest begins with one. */
	rule->fixed_len = strcmp(resolved, "/") == 0 ? 0 : strlen(resolved);
	if (!name)
		name = strcmp(as_written, "/") == 0 ? "" : as_written;
	rule->name = strdup(name);
	if (rule->kind == PAGE_RULE_GLOB)
		rule->pattern = glob_pattern(rule->fixed_len ? resolved : "", rest);
	else
		rule->pattern = strdup(resolved);
	if (!rule->name || !rule->pattern)
		return reading_out_of_memory(r);
	if (strlen(rule->pattern) >= PATH_MAX)
		return reading_fail(r, rule->line, "the pattern is %zu bytes long when resolved; expected less than %d",
				    strlen(rule->pattern), PATH_MAX);
	return 0;
}

/* `given`: the name stands in the file; else it is the path. */
static int check_name(const struct config_reading *r, int line, const char *name, bool given)
{
	size_t len = strlen(name);

	if (len >= LOCK_NAME_BYTES)
		return reading_fail(r, line, "the lock name is %zu bytes long; expected at most %d%s", len,
				    LOCK_NAME_BYTES - 1, given ? "" : ": give it a name");
	if (given && name[len - 1] == '/')
		return reading_fail(r, line, "name is \"%.100s\"; expected no / at its end", name);
	return 0;
}

/* Such a setting counts seconds in milliseconds: a number that is far too small would end every job. */
static int check_hold_limits(const struct config_reading *r, config_setting_t *group, const struct rule *rule)
{
	int line = settings_line(group, "kill_after_ms");

	if (rule->kill_after_ms && rule->kill_after_ms < CONFIG_KILL_LEAST_MS)
		return reading_fail(r, line, "kill_after_ms is %lld; expected 0, or at least %d: it is in milliseconds",
				    (long long)rule->kill_after_ms, CONFIG_KILL_LEAST_MS);
	if (rule->kill_after_ms && rule->kill_after_ms < rule->warn_after_ms)
		return reading_fail(r, line, "kill_after_ms is %lld; expected at least warn_after_ms, which is %lld",
				    (long long)rule->kill_after_ms, (long long)rule->warn_after_ms);
	return 0;
}

/* One key is the lock of one file: without a wildcard, and in one rule (check_keys()). */
static int check_key(const struct config_reading *r, config_setting_t *group, const struct rule *rule, const char *key,
		     const char *format)
{
	int line = settings_line(group, "redis_key");

	if (strcmp(format, "string") != 0 && strcmp(format, "redisson") != 0)
		return reading_fail(r, settings_line(group, "redis_key_format"),
				    "redis_key_format is \"%.80s\"; expected \"string\" or \"redisson\"", format);
	if (!*key || strlen(key) >= CONFIG_KEY_BYTES)
		return reading_fail(r, line, "redis_key is %zu bytes long; expected 1 to %d", strlen(key),
				    CONFIG_KEY_BYTES - 1);
	for (const char *c = key; *c; c++)
		if (*c < ' ' || *c > '~')
			return reading_fail(r, line, "redis_key has a byte that is not printable ASCII; expected none");
	if (strncmp(key, "dflock:", 7) == 0)
		return reading_fail(r, line, "redis_key is \"%.100s\"; expected a key that is not dflock's own", key);
	if (rule->kind != PAGE_RULE_PATH)
		return reading_fail(r, line, "redis_key is in the rule of many files; expected the path of one file");
	if (rule->at_least_ms)
		return reading_fail(
			r, line,
			"redis_key and at_least_ms are in one rule; expected one of them: Redis clients know "
			"no rest");
	return 0;
}

/* The path or tree, with the name if there is one. */
static int read_place(const struct config_reading *r, config_setting_t *group, const struct rule_values *values,
		      struct rule *rule)
{
	const char *what = values->path ? "path" : "tree", *text = values->path ? values->path : values->tree;
	const char *wrong = NULL;
	char as_written[PATH_MAX];
	int ret;

	if (!values->path == !values->tree)
		return reading_fail(r, config_setting_source_line(group), "this rule has %s; expected one of the two",
				    values->path ? "both path and tree" : "neither path nor tree");
	rule->line = settings_line(group, what);
	ret = resolve_normalise(text, as_written);
	rule->kind = values->tree ? PAGE_RULE_TREE : strpbrk(text, "*?[") ? PAGE_RULE_GLOB : PAGE_RULE_PATH;
	if (ret < 0)
		wrong = ret == -EINVAL ? "expected an absolute path without . and .. in it" : "expected a shorter path";
	else if (values->path && strcmp(as_written, "/") == 0)
		wrong = "the root directory is no file; expected tree";
	else if (rule->kind == PAGE_RULE_GLOB)
		wrong = check_glob(as_written);
	if (wrong)
		return reading_fail(r, rule->line, "%s is \"%.200s\": %s", what, text, wrong);
	return compile_rule(r, rule, as_written,
			    rule->kind == PAGE_RULE_GLOB ? fixed_part(as_written) : strlen(as_written), values->name);
}

static int read_rule(const struct config_reading *r, config_setting_t *group, const struct config *config,
		     struct rule *rule)
{
	struct rule_values values = {.rule = *rule};
	const char *format;
	int ret;

	if (!config_setting_is_group(group))
		return reading_fail(r, config_setting_source_line(group),
				    "expected groups such as { path = \"/...\"; } in protect");
	ret = settings_read(r, group, "", config_rule_rows, &values);
	*rule = values.rule;
	if (ret == 0 && values.store)
		rule->store = (unsigned)stores_find(config, values.store);
	if (ret == 0 && rule->store >= config->store_count)
		ret = reading_fail(r, settings_line(group, "store"), "store is \"%.80s\"; expected a name in stores",
				   values.store);
	if (ret == 0)
		ret = check_hold_limits(r, group, rule);
	if (ret == 0)
		ret = read_place(r, group, &values, rule);
	if (ret == 0 && values.redis_key) {
		format = values.redis_key_format ? values.redis_key_format : "string";
		ret = check_key(r, group, rule, values.redis_key, format);
		if (ret == 0 && asprintf(&rule->redis_key, "%s %s", format, values.redis_key) < 0) {
			rule->redis_key = NULL;
			ret = reading_out_of_memory(r);
		}
	}
	if (ret < 0)
		return ret;
	return check_name(r, values.name ? settings_line(group, "name") : rule->line, rule->name, values.name != NULL);
}

/* What no two rules may have: the same kind and pattern; or, of those that have one in one store, the same redis_key, since the locks of
 * their files would be one lock. */
static int order_by(const struct rule *x, const struct rule *y, bool keys)
{
	if (keys && x->store != y->store)
		return (int)x->store - (int)y->store;
	if (keys)
		return strcmp(strchr(x->redis_key, ' '), strchr(y->redis_key, ' '));
	return x->kind != y->kind ? (int)x->kind - (int)y->kind : strcmp(x->pattern, y->pattern);
}

static int compare_rules(const void *a, const void *b, void *keys)
{
	const struct rule *x = *(const struct rule *const *)a, *y = *(const struct rule *const *)b;
	int order = order_by(x, y, *(const bool *)keys);

	return order ? order : (x > y) - (x < y);
}

static int check_twins(const struct config_reading *r, const struct config *config, bool keys)
{
	const struct rule **sorted = calloc(config->rule_count, sizeof(*sorted));
	size_t count = 0;
	int ret = 0;

	if (!sorted)
		return reading_out_of_memory(r);
	for (size_t i = 0; i < config->rule_count; i++)
		if (!keys || config->rules[i].redis_key)
			sorted[count++] = &config->rules[i];
	qsort_r(sorted, count, sizeof(*sorted), compare_rules, &keys);
	for (size_t i = 1; i < count && ret == 0; i++)
		if (order_by(sorted[i - 1], sorted[i], keys) == 0)
			ret = reading_fail(r, sorted[i]->line,
					   keys ? "%.200s has the redis_key of line %d; expected a key of its own"
						: "%.200s is in the rule of line %d already; expected it once",
					   sorted[i]->pattern, sorted[i - 1]->line);
	free(sorted);
	return ret;
}

/* Who names a lock says no store. */
static int check_names_of_stores(const struct config_reading *r, const struct config *config)
{
	for (size_t i = 0; config->store_count > 1 && i < config->rule_count; i++) {
		const struct rule *rule = &config->rules[i], *other = rules_in_two_stores(config, rule);

		if (other)
			return reading_fail(
				r, rule->line,
				"%.200s has a lock name that line %d gives, too, in another store; expected "
				"names of its own",
				rule->pattern, other->line);
	}
	return 0;
}

/* Scripts run beside dflock's own keys: in one server, which has them all; a Redis Cluster refuses keys of two slots. */
static int check_keys(const struct config_reading *r, struct config *config)
{
	for (size_t i = 0; i < config->rule_count; i++) {
		const struct rule *rule = &config->rules[i];
		struct config_store *store = &config->stores[rule->store];
		const char *wrong = config_engine(store) ? "not Redis"
				    : store->cluster     ? "a Redis Cluster, whose scripts cannot use keys of two slots"
				    : store->shards > 1  ? "spread over shards"
							 : NULL;
		char group[CONFIG_GROUP_BYTES];

		store->keys = store->keys || rule->redis_key;
		if (rule->redis_key && wrong)
			return reading_fail(r, rule->line,
					    "redis_key is set for %.200s, and %s is %s; expected a single server or "
					    "sentinels",
					    rule->pattern, config_store_group(store, group), wrong);
	}
	return check_twins(r, config, true);
}

/* The shared page must have room for all rules, and for the one of `dflock lock`. */
static int check_room(const struct config_reading *r, const struct config *config)
{
	unsigned char *page = malloc(PAGE_RULES_BYTES);
	size_t used = PATH_MAX + sizeof(struct page_rule);
	int ret = 0;

	if (!page)
		return reading_out_of_memory(r);
	for (size_t i = 0; i < config->rule_count && ret == 0; i++) {
		const struct rule *rule = &config->rules[i];

		if (page_rule_append(page, PAGE_RULES_BYTES, &used, rule->kind, rule->on_refused, rule->pattern) < 0)
			ret = reading_fail(r, rule->line, "the rules up to here need more than %u bytes; expected %s",
					   PAGE_RULES_BYTES, "fewer: a tree or a wildcard can stand for many");
	}
	free(page);
	return ret;
}

int protect_read(const struct config_reading *r, config_setting_t *list, struct config *config)
{
	size_t count = list ? (size_t)config_setting_length(list) : 0;
	int ret;

	if (count == 0)
		return 0;
	config->rules = calloc(count, sizeof(*config->rules));
	if (!config->rules)
		return reading_out_of_memory(r);
	for (; config->rule_count < count; config->rule_count++) {
		config->rules[config->rule_count].on_lost = config->lease.on_lost;
		config->rules[config->rule_count].wait_warn_ms = config->lease.wait_warn_ms;
		config->rules[config->rule_count].on_refused = config->lease.on_refused;
		ret = read_rule(r, config_setting_get_elem(list, (unsigned)config->rule_count), config,
				&config->rules[config->rule_count]);
		if (ret < 0) {
			config->rule_count++; /* config_free() frees the half-filled rule, too */
			return ret;
		}
	}
	ret = check_twins(r, config, false);
	if (ret == 0)
		ret = check_names_of_stores(r, config);
	if (ret == 0)
		ret = check_keys(r, config);
	return ret < 0 ? ret : check_room(r, config);
}
