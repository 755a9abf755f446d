/* What the parts of `dflock doctor` share, and its --acl. */
#include "cli/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli/field.h"
#include "cli/show.h"
#include "config/rights.h"

void doctor_find(struct doctor *d, enum finding level, const char *format, ...)
{
	static const char *const names[] = {"ok", "warning", "problem"};
	char line[CLI_LINE_BYTES + 2 * PATH_MAX] = "", group[CONFIG_GROUP_BYTES];
	size_t used = 0;
	va_list args;

	if (d->part && level == FINDING_OK) /* as the first one, 16 times */
		return;
	if (d->part)
		used = (size_t)snprintf(line, sizeof(line), "%s: ", d->part);
	else if (d->store && d->config->store_count > 1)
		used = (size_t)snprintf(line, sizeof(line), "%s: ", config_store_group(d->store, group));
	va_start(args, format);
	vsnprintf(line + used, sizeof(line) - used, format, args);
	va_end(args);
	d->counts[level]++;
	if (d->found) {
		json_array_append_new(d->found,
				      json_pack("{s:s, s:o}", "level", names[level], "text", show_json(line)));
		return;
	}
	printf("%s:%*s", names[level], 8 - (int)strlen(names[level]), "");
	show_text(stdout, line);
	putchar('\n');
	fflush(stdout); /* the next one may take seconds */
}

/*
 * --- dflock doctor --acl: the rights that dflock needs in the store, as commands to give there ---
 *
 * The form is that of Redis 6.2, which newer versions take, too: nothing that only 7 has (selectors, %R~) would make the set
 * smaller, because the scripts read and write the same keys.
 */

#define ACL_USER "dflock"

/* A word of a command. A name that the parser let through may have blanks; redis-cli takes quotes. */
static void acl_word(const char *prefix, const char *word)
{
	bool quote = strpbrk(word, " \t\"'\\") != NULL;

	printf(" %s%s", quote ? "\"" : "", prefix);
	for (const char *c = word; *c; c++) {
		char one[3] = {*c == '"' || *c == '\\' ? '\\' : *c, *c == '"' || *c == '\\' ? *c : '\0', '\0'};
		show_text(stdout, one);
	}
	printf("%s", quote ? "\"" : "");
}

/* The key as a pattern that matches nothing else. */
static void acl_pattern(const char *prefix, const char *key)
{
	char pattern[2 * CONFIG_KEY_BYTES], *end = pattern;

	for (; *key && end < pattern + sizeof(pattern) - 2; key++) {
		if (strchr("*?[]\\", *key))
			*end++ = '\\';
		*end++ = *key;
	}
	*end = '\0';
	acl_word(prefix, pattern);
}

/* The keys of the rules, and the channels on which it may be said that they are free. */
static void acl_keys(const struct config *config, const struct config_store *store)
{
	char keyspace[32];

	snprintf(keyspace, sizeof(keyspace), "&__keyspace@%d__:", store->database);
	for (size_t i = 0; i < config->rule_count; i++) {
		const struct rule *rule = &config->rules[i];
		const char *key = rule->redis_key, *name = key ? strchr(key, ' ') + 1 : NULL;
		char channel[CONFIG_KEY_BYTES + 2];

		if (!key || store != &config->stores[rule->store])
			continue;
		acl_pattern("~", name);
		acl_pattern(keyspace, name);
		if (strncmp(key, "redisson ", 9) != 0)
			continue;
		snprintf(channel, sizeof(channel), strchr(name, '{') ? "%s" : "{%s}", name);
		acl_pattern("&redisson_lock__channel:", channel);
	}
}

static void acl_print(const char *user, const char *beyond, const struct config *config,
		      const struct config_store *store, const char *const *words, size_t count)
{
	printf("ACL SETUSER");
	acl_word("", user);
	printf(" reset on >PASSWORD resetchannels%s", beyond);
	if (config)
		acl_keys(config, store);
	printf(" -@all");
	for (size_t i = 0; i < count; i++)
		printf(" +%s", words[i]);
	putchar('\n');
}

/* For psql. What the role needs is in the schema, which was made with the rights of another role. */
__asm__(".pushsection .rodata\n"
	"acl_schema:\n"
	".incbin \"store/postgresql/schema.sql\"\n"
	".byte 0\n"
	".popsection\n");
extern const char acl_schema[];

static void acl_postgresql(void)
{
	puts("-- For psql in the database that has the schema dflock. The role is the one that user= names. Write the password\n"
	     "-- for PASSWORD, and the same one into the file that password_file names; leave create role out where it is there.\n"
	     "\\set role " ACL_USER "\n"
	     "create role :role login password 'PASSWORD';");
	for (const char *line = acl_schema; *line; line += strcspn(line, "\n"), line += *line == '\n')
		if (strncmp(line, "grant ", 6) == 0)
			printf("%.*s\n", (int)strcspn(line, "\n"), line);
}

static void acl_store(const struct config *config, const struct config_store *store)
{
	const char *words[RIGHTS_MAX];
	char group[CONFIG_GROUP_BYTES];

	if (store && config->store_count > 1)
		printf("%s For %s:\n", store->postgresql ? "--" : "#", config_store_group(store, group));
	if (store && store->postgresql)
		acl_postgresql();
	else if (store && store->zookeeper)
		puts("# create, read, write and delete on the path that store.zookeeper names, for this user or for the hosts' addresses.\n"
		     "# Hosts give what they make below it the same ACL: create the path and set its ACL before the first host comes.");
	if (store && config_engine(store))
		return;
	puts("# On the server, and on each replica, which may become the master. Write the password for PASSWORD, and the same");
	puts("# one into the file that password_file names. Then ACL SAVE, or CONFIG REWRITE where there is no aclfile.");
	acl_print(store && store->user ? store->user : ACL_USER, " " RIGHTS_KEYS " " RIGHTS_CHANNELS, config, store,
		  words, rights_of_server(store, words));
	if (store && (store->sentinel_count == 0 || store->cluster))
		return;
	puts("# On each sentinel.");
	acl_print(store && store->sentinel_user ? store->sentinel_user : ACL_USER, "", NULL, store, words,
		  rights_of_sentinel(words));
}

int doctor_acl(const struct config *config)
{
	for (size_t i = 0; i < (config ? config->store_count : 1); i++)
		acl_store(config, config ? &config->stores[i] : NULL);
	return CLI_OK;
}
