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
	char line[CLI_LINE_BYTES + 2 * PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
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
static void acl_keys(const struct config *config)
{
	char keyspace[32];

	snprintf(keyspace, sizeof(keyspace), "&__keyspace@%d__:", config->stores[0].database);
	for (size_t i = 0; i < config->rule_count; i++) {
		const char *key = config->rules[i].redis_key, *name = key ? strchr(key, ' ') + 1 : NULL;
		char channel[CONFIG_KEY_BYTES + 2];

		if (!key)
			continue;
		acl_pattern("~", name);
		acl_pattern(keyspace, name);
		if (strncmp(key, "redisson ", 9) != 0)
			continue;
		snprintf(channel, sizeof(channel), strchr(name, '{') ? "%s" : "{%s}", name);
		acl_pattern("&redisson_lock__channel:", channel);
	}
}

static void acl_print(const char *user, const char *beyond, const struct config *config, const char *const *words,
		      size_t count)
{
	printf("ACL SETUSER");
	acl_word("", user);
	printf(" reset on >PASSWORD resetchannels%s", beyond);
	if (config)
		acl_keys(config);
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

int doctor_acl(const struct config *config)
{
	const struct config_store *store = config ? &config->stores[0] : NULL;
	const char *words[RIGHTS_MAX];

	if (store && store->postgresql)
		acl_postgresql();
	else if (store && store->zookeeper)
		puts("# create, read, write and delete on the path that store.zookeeper names, for this user or for the hosts' addresses.\n"
		     "# Hosts give what they make below it the same ACL: create the path and set its ACL before the first host comes.");
	if (store && config_engine(store))
		return CLI_OK;
	puts("# On the server, and on each replica, which may become the master. Write the password for PASSWORD, and the same");
	puts("# one into the file that password_file names. Then ACL SAVE, or CONFIG REWRITE where there is no aclfile.");
	acl_print(store && store->user ? store->user : ACL_USER, " " RIGHTS_KEYS " " RIGHTS_CHANNELS, config, words,
		  rights_of_server(store, words));
	if (store && (store->sentinel_count == 0 || store->cluster))
		return CLI_OK;
	puts("# On each sentinel.");
	acl_print(store && store->sentinel_user ? store->sentinel_user : ACL_USER, "", NULL, words,
		  rights_of_sentinel(words));
	return CLI_OK;
}
