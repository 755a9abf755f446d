/* dflock doctor: is the set-up right, and will the preload reach a program? */
#include "cli/doctor.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/program.h"
#include "cli/show.h"
#include "config/rights.h"

void doctor_find(struct doctor *d, enum finding level, const char *format, ...)
{
	static const char *const names[] = {"ok:      ", "warning: ", "problem: "};
	char line[CLI_LINE_BYTES + 2 * PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	fputs(names[level], stdout);
	show_text(stdout, line);
	putchar('\n');
	fflush(stdout); /* the next one may take seconds */
	d->counts[level]++;
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

	snprintf(keyspace, sizeof(keyspace), "&__keyspace@%d__:", config->store.database);
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

static int doctor_acl(const struct config *config)
{
	const struct config_store *store = config ? &config->store : NULL;
	const char *words[RIGHTS_MAX];

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

/* --- the command --- */

static const char doctor_doc[] = "Looks at the installation, the configuration, the keeper, the store and the "
				 "protected files, and says line by line what is in order (ok:), what may surprise "
				 "(warning:) and what must be mended (problem:). With PROGRAM also whether the "
				 "preload will reach it. If no keeper runs, one is started to try the store; it ends "
				 "by itself when no program needs it.\v"
				 "The exit status is 0 if there is no problem, and else 1.";

static void check_installation(struct doctor *d)
{
	char path[PATH_MAX];

	if (program_shim(path))
		doctor_find(d, FINDING_PROBLEM, "%s: %s; without it no lock is protected: install it", path,
			    strerror(errno));
	else if (strpbrk(path, ": "))
		doctor_find(d, FINDING_PROBLEM,
			    "%s: a path with a space or a colon cannot be preloaded; install dflock elsewhere", path);
	else
		doctor_find(d, FINDING_OK, "the library is %s", path);
	cli_find("dflockd", "sbin", DFLOCKD_INSTALLED, path);
	if (access(path, X_OK))
		doctor_find(d, FINDING_PROBLEM, "the keeper's program %s: %s; install it", path, strerror(errno));
	else
		doctor_find(d, FINDING_OK, "the keeper's program is %s", path);
	cli_find("dflock-net", "libexec", NET_INSTALLED, path);
	if (access(path, X_OK))
		doctor_find(
			d, FINDING_WARNING,
			"the net's program %s: %s; `dflock run --net=on` needs it: install it (it is there for x86-64 and arm64)",
			path, strerror(errno));
	else
		doctor_find(d, FINDING_OK, "the net's program is %s", path);
}

static void check_config(struct doctor *d)
{
	char why[CLI_LINE_BYTES];

	if (!d->place.config[0])
		doctor_find(d, FINDING_PROBLEM, "there is no configuration, so nothing is protected; " CLI_WRITE_ONE);
	else if (config_load(d->place.config, &d->config, why, sizeof(why))) {
		if (!doctor_keeper_reads(d, why))
			doctor_find(d, FINDING_PROBLEM, "%s; until this is mended every lock is refused", why);
	} else if (!d->config->rule_count)
		doctor_find(d, FINDING_WARNING, "the configuration %s protects nothing; add rules to `protect`",
			    d->place.config);
	else
		doctor_find(d, FINDING_OK, "the configuration %s is valid and has %zu rule%s", d->place.config,
			    d->config->rule_count, d->config->rule_count == 1 ? "" : "s");
}

static void check_program(struct doctor *d, const char *name)
{
	static const enum finding levels[] = {
		[REACH_YES] = FINDING_OK,     [REACH_ITSELF] = FINDING_WARNING, [REACH_DOUBTFUL] = FINDING_WARNING,
		[REACH_NO] = FINDING_PROBLEM, [REACH_CANNOT] = FINDING_PROBLEM,
	};
	struct program program;
	char shim[PATH_MAX];

	if (program_shim(shim))
		return; /* the finding about the installation says it */
	program_examine(name, NULL, shim, true, &program);
	doctor_find(d, levels[program.reach], "%s", program.line);
}

/* Without a configuration: for all that it may say. */
static int print_acl(struct doctor *d)
{
	char why[CLI_LINE_BYTES];
	int ret;

	if (d->place.config[0] && config_load_rules(d->place.config, &d->config, why, sizeof(why)))
		return cli_fail(why);
	ret = doctor_acl(d->config);
	config_free(d->config);
	return ret;
}

int cmd_doctor(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"config", 'c', "FILE", 0, "go by FILE instead of the configuration that would be used", 0},
		{"acl", 0x100, NULL, 0, "only print the rights that dflock needs in the store, as Redis commands", 0},
		{0}};
	struct doctor d = {.config = NULL};
	const char *file = NULL;
	bool acl = false;
	int words = cli_options(argc, argv, doctor_doc, "[PROGRAM]", known, (void *[]){&file, &acl});

	cli_place(&d.place, file);
	if (acl)
		return print_acl(&d);
	check_installation(&d);
	check_config(&d);
	doctor_tls(&d);
	doctor_keeper(&d);
	doctor_replicas(&d);
	doctor_files(&d);
	doctor_preloads(&d);
	if (words)
		check_program(&d, argv[argc - 1]);
	tls_context_free(d.tls);
	config_free(d.config);
	printf("\n%u problem%s, %u warning%s\n", d.counts[FINDING_PROBLEM], d.counts[FINDING_PROBLEM] == 1 ? "" : "s",
	       d.counts[FINDING_WARNING], d.counts[FINDING_WARNING] == 1 ? "" : "s");
	return d.counts[FINDING_PROBLEM] ? CLI_FAILED : CLI_OK;
}
