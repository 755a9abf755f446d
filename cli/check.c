/* dflock check: is the configuration right, and what does it protect? */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/field.h"
#include "cli/show.h"
#include "config/config.h"
#include "tls/tls_context.h"

static const char check_doc[] =
	"Reads the configuration as a keeper would and says what is wrong with it, with file and line. For each FILE "
	"says whether its locks are protected and under which lock name; it need not exist yet.\v"
	"The exit status is 0 if the configuration is valid, the files of TLS can be used and the command of on_event can be run, whether the FILEs are "
	"protected or not, and else 1. With "
	"--require it is 1 also if one of them is not protected.";

/* What the rule says, for programs by its name and for people in words. `store`: "": the default one. */
static void check_said(const struct rule *rule, const char *store, json_t *about)
{
	const struct {
		int64_t ms;
		const char *name, *words;
	} times[] = {{rule->at_least_ms, "at_least_ms", "one lock in"},
		     {rule->warn_after_ms, "warn_after_ms", "reported after"},
		     {rule->kill_after_ms, "kill_after_ms", "holders ended after"}};
	char time[SHOW_TIME_BYTES];

	if (*store && about)
		json_object_set_new(about, "store", json_string(store));
	else if (*store)
		printf(", in the store %s", store);
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		if (times[i].ms && about)
			json_object_set_new(about, times[i].name, json_integer(times[i].ms));
		else if (times[i].ms)
			printf(", %s %s (%s)", times[i].words, show_ms(times[i].ms, time), times[i].name);
	}
}

static void check_say(const char *path, const char *name, int protects, const struct rule *rule, const char *store)
{
	struct stat st;

	show_text(stdout, path);
	if (!protects) {
		fputs(": protected as ", stdout);
		show_text(stdout, name);
		check_said(rule, store, NULL);
		if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink > 1)
			printf("; it has %ju links, and a lock by one that no rule names is not protected",
			       (uintmax_t)st.st_nlink);
	} else if (protects == -ENOENT) {
		fputs(": not protected", stdout);
	} else {
		fputs(": locks on it are refused, its lock name is too long; give its rule a shorter name", stdout);
	}
	putchar('\n');
}

static json_t *check_row(const char *path, const char *name, int protects, const struct rule *rule, const char *store)
{
	json_t *row = json_pack("{s:o, s:b}", "path", show_json(path), "protected", protects == 0);

	if (!protects) {
		json_object_set_new(row, "name", show_json(name));
		check_said(rule, store, row);
	} else if (protects != -ENOENT) {
		json_object_set_new(row, "refused", json_string("its lock name is too long"));
	}
	return row;
}

/* rows: NULL: for people. False: the path could not be resolved, or the file must be protected (require) and is not. */
static bool check_one(const struct config *config, const char *file, bool require, json_t *rows)
{
	char path[PATH_MAX], name[LOCK_NAME_BYTES] = "";
	int ret = files_resolve(file, path);
	struct rule rule;

	if (ret) {
		cli_error("%s: %s", *file ? file : "\"\"", strerror(-ret));
		return false;
	}
	ret = config_lock_name(config, path, name);
	rule = config_rule_for(config, path);
	if (rows)
		json_array_append_new(rows, check_row(path, name, ret, &rule, config->stores[rule.store].name));
	else
		check_say(path, name, ret, &rule, config->stores[rule.store].name);
	return !require || !ret;
}

/* Beside a keeper of the system its users need not read the passwords, and mostly may not. */
static bool check_load(const char *path, struct config **config)
{
	char why[CLI_LINE_BYTES], ignored[CLI_LINE_BYTES];
	int ret = config_load(path, config, why, sizeof(why));

	if (ret == -EACCES && config_load_rules(path, config, ignored, sizeof(ignored)) == 0) {
		cli_error("%s; that does no harm where the keeper is another user's", why);
		return true;
	}
	if (ret < 0)
		cli_error("%s", why);
	return ret == 0;
}

static bool check_command(const struct config *config)
{
	char why[CLI_LINE_BYTES];
	int ret = config_can_run(config, why, sizeof(why));
	bool harmless = ret == -EACCES && geteuid() != 0;

	if (ret < 0)
		cli_error("%s%s", why, harmless ? "; that does no harm where the keeper is another user's" : "");
	return ret == 0 || harmless;
}

/* The keeper reads these files when it connects. */
static bool check_tls(const struct config *config, const struct config_store *store)
{
	char group[CONFIG_GROUP_BYTES];
	struct tls_context *tls = NULL;
	char why[TLS_LINE_BYTES];
	int ret = store->tls.on ? tls_context_load(&store->tls, &tls, why) : 0;
	bool harmless = ret == -EACCES && geteuid() != 0;

	if (ret < 0)
		cli_error("%s: %s.%s%s", config->path, config_store_group(store, group), why,
			  harmless ? "; that does no harm where the keeper is another user's" : "");
	tls_context_free(tls);
	return ret == 0 || harmless;
}

static bool check_engine(const struct config *config, const struct config_store *store)
{
	const char *engine = config_engine(store);
	char path[PATH_MAX], why[CLI_LINE_BYTES];
	int ret = engine ? config_find_engine(engine, path, why, sizeof(why)) : 0;

	if (ret < 0)
		cli_error("%s: %s", config->path, why);
	return ret == 0;
}

int cmd_check(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"config", 'c', "FILE", 0, "check FILE instead of the configuration that would be used", 0},
		{"require", 'r', NULL, 0, "fail if a FILE is not protected", 0},
		{"json", 'j', NULL, 0, "print it for programs", 0},
		{0}};
	const char *file = NULL;
	bool require = false, json = false, all;
	int count = cli_options(argc, argv, check_doc, "[FILE...]", known, (void *[]){&file, &require, &json});
	struct config *config;
	struct place place;
	json_t *answer, *rows;

	if (require && !count)
		cli_misused(argv, "--require needs a FILE");
	cli_place(&place, file);
	if (!place.config[0]) {
		cli_error("there is no configuration, so nothing is protected; " CLI_WRITE_ONE);
		return CLI_FAILED;
	}
	if (!check_load(place.config, &config))
		return CLI_FAILED;
	rows = json ? json_array() : NULL;
	if (!json) {
		fputs("configuration OK: ", stdout);
		show_text(stdout, config->path);
		printf(", %zu rule%s\n", config->rule_count, config->rule_count == 1 ? "" : "s");
	}
	all = check_command(config);
	for (size_t i = 0; i < config->store_count; i++) {
		all &= check_tls(config, &config->stores[i]);
		all &= check_engine(config, &config->stores[i]);
	}
	for (int i = argc - count; i < argc; i++)
		all &= check_one(config, argv[i], require, rows);
	if (json) {
		answer = json_pack("{s:i, s:b, s:o, s:I, s:o}", "schema", 1, "ok", all, "config",
				   show_json(config->path), "rules", (json_int_t)config->rule_count, "files", rows);
		field_print(answer);
		json_decref(answer);
	}
	config_free(config);
	return all ? CLI_OK : CLI_FAILED;
}
