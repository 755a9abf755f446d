/* dflock check: is the configuration right, and what does it protect? */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/show.h"
#include "config/config.h"
#include "tls/tls_context.h"

static const char check_doc[] =
	"Reads the configuration as a keeper would and says what is wrong with it, with file and line. For each FILE "
	"says whether its locks are protected and under which lock name; it need not exist yet.\v"
	"The exit status is 0 if the configuration is valid, the files of TLS can be used and the command of on_event can be run, whether the FILEs are "
	"protected or not, and else 1. With "
	"--require it is 1 also if one of them is not protected.";

static void report_times(const struct rule *rule)
{
	char time[SHOW_TIME_BYTES];

	if (rule->at_least_ms)
		printf(", one lock in %s (at_least_ms)", show_ms(rule->at_least_ms, time));
	if (rule->warn_after_ms)
		printf(", reported after %s (warn_after_ms)", show_ms(rule->warn_after_ms, time));
	if (rule->kill_after_ms)
		printf(", holders ended after %s (kill_after_ms)", show_ms(rule->kill_after_ms, time));
}

/* False: the path could not be resolved, or the file must be protected (require) and is not. */
static bool report_file(const struct config *config, const char *file, bool require)
{
	char path[PATH_MAX], name[LOCK_NAME_BYTES];
	int ret = files_resolve(file, path);
	struct rule rule;
	struct stat st;

	if (ret) {
		cli_error("%s: %s", *file ? file : "\"\"", strerror(-ret));
		return false;
	}
	ret = config_lock_name(config, path, name);
	show_text(stdout, path);
	if (!ret) {
		fputs(": protected as ", stdout);
		show_text(stdout, name);
		rule = config_rule_for(config, path);
		report_times(&rule);
		if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink > 1)
			printf("; it has %ju links, and a lock by one that no rule names is not protected",
			       (uintmax_t)st.st_nlink);
	} else if (ret == -ENOENT) {
		fputs(": not protected", stdout);
	} else {
		fputs(": locks on it are refused, its lock name is too long; give its rule a shorter name", stdout);
	}
	putchar('\n');
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
static bool check_tls(const struct config *config)
{
	struct tls_context *tls = NULL;
	char why[TLS_LINE_BYTES];
	int ret = config->store.tls.on ? tls_context_load(&config->store.tls, &tls, why) : 0;
	bool harmless = ret == -EACCES && geteuid() != 0;

	if (ret < 0)
		cli_error("%s: store.%s%s", config->path, why,
			  harmless ? "; that does no harm where the keeper is another user's" : "");
	tls_context_free(tls);
	return ret == 0 || harmless;
}

int cmd_check(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"config", 'c', "FILE", 0, "check FILE instead of the configuration that would be used", 0},
		{"require", 'r', NULL, 0, "fail if a FILE is not protected", 0},
		{0}};
	const char *file = NULL;
	bool require = false, all;
	int count = cli_options(argc, argv, check_doc, "[FILE...]", known, (void *[]){&file, &require});
	struct config *config;
	struct place place;

	if (require && !count)
		cli_misused(argv, "--require needs a FILE");
	cli_place(&place, file);
	if (!place.config[0]) {
		cli_error("there is no configuration, so nothing is protected; " CLI_WRITE_ONE);
		return CLI_FAILED;
	}
	if (!check_load(place.config, &config))
		return CLI_FAILED;
	fputs("configuration OK: ", stdout);
	show_text(stdout, config->path);
	printf(", %zu rule%s\n", config->rule_count, config->rule_count == 1 ? "" : "s");
	all = check_command(config);
	all &= check_tls(config);
	for (int i = argc - count; i < argc; i++)
		all &= report_file(config, argv[i], require);
	config_free(config);
	return all ? CLI_OK : CLI_FAILED;
}
