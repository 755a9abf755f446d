#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/show.h"
#include "config/internal.h" /* resolve_path() */

#define NAME_PLAIN   "._@:+=,-" /* not CONFIG_NAMES_REST */
#define FILES_SLOW_S 5

void cli_error(const char *format, ...)
{
	char line[CLI_LINE_BYTES + PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	setlocale(LC_CTYPE, ""); /* not at the start of each job */
	fflush(stdout);
	fputs("dflock: ", stderr);
	show_text(stderr, line);
	fputc('\n', stderr);
}

int cli_fail(const char *why)
{
	cli_error("%s", why);
	return CLI_FAILED;
}

struct options {
	const struct argp_option *known;
	void *const *into;
	const char *args;
	int count;
};

static error_t cli_take_option(struct options *options, int key, char *arg)
{
	for (size_t i = 0; options->known && options->known[i].name; i++) {
		if (key != options->known[i].key)
			continue;
		if (options->known[i].arg)
			*(const char **)options->into[i] = arg;
		else
			*(bool *)options->into[i] = true;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static error_t cli_parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	const char *args = options->args;

	if (key == ARGP_KEY_NO_ARGS && args && args[0] != '[')
		argp_usage(state);
	if (key != ARGP_KEY_ARGS)
		return cli_take_option(options, key, arg);
	options->count = state->argc - state->next;
	if (!args)
		argp_error(state, "it takes no arguments, but got %s", state->argv[state->next]);
	else if (strstr(args, "LOCK") && !*state->argv[state->next])
		argp_error(state, "the LOCK is empty");
	else if (options->count > 1 && !strstr(args, "..."))
		argp_error(state, "it takes one %.*s, but got %s as well", (int)strcspn(args + (*args == '['), "]"),
			   args + (*args == '['), state->argv[state->next + 1]);
	return 0;
}

int cli_options(int argc, char **argv, const char *doc, const char *args, const struct argp_option *known,
		void *const *into)
{
	const struct argp argp = {.options = known, .parser = cli_parse, .args_doc = args, .doc = doc};
	struct options options = {.known = known, .into = into, .args = args};

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	return options.count;
}

void cli_misused(char **argv, const char *why)
{
	fprintf(stderr, "%s: %s\nTry `%s --help' or `%s --usage' for more information.\n", argv[0], why, argv[0],
		argv[0]);
	exit(argp_err_exit_status);
}

bool cli_force(int argc, char **argv, const char *doc, const char *help)
{
	const struct argp_option known[] = {{"force", 'f', NULL, 0, help, 0}, {0}};
	bool force = false;

	cli_options(argc, argv, doc, NULL, known, (void *[]){&force});
	return force;
}

int cli_end(int status)
{
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	cli_error("cannot write the output: %s", strerror(errno));
	return status ? status : CLI_FAILED;
}

int cli_number(const char *text, int most)
{
	char *end;
	long number = strtol(text, &end, 10);

	return !*end && number >= 1 && number <= most ? (int)number : 0;
}

int64_t cli_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void cli_place(struct place *place, const char *config)
{
	place_init(place);
	if (!config)
		return;
	if (!realpath(config, place->config)) {
		/* The file does not exist. config_load() reports that, with this name. */
		snprintf(place->config, sizeof(place->config), "%s", config);
	}
}

bool cli_lock_file(const char *name, char file[NAME_MAX + 1])
{
	size_t len = 0;

	for (const char *p = name; *p; p++) {
		bool plain = isascii((unsigned char)*p) && (isalnum((unsigned char)*p) || strchr(NAME_PLAIN, *p)) &&
			     !(p == name && *p == '.');

		if (len + (plain ? 1 : 3) > NAME_MAX)
			return false;
		len += (size_t)(plain ? sprintf(file + len, "%c", *p)
				      : sprintf(file + len, "%%%02X", (unsigned char)*p));
	}
	file[len] = '\0';
	return true;
}

/* Makes `file` absolute, with its directory resolved if that exists ("../x"). */
static int files_make_absolute(const char *file, char absolute[PATH_MAX])
{
	const char *slash = strrchr(file, '/');
	char given[PATH_MAX], dir[PATH_MAX];
	const char *base = slash ? slash + 1 : file;

	if (strlen(file) >= PATH_MAX)
		return -ENAMETOOLONG;
	snprintf(given, sizeof(given), "%.*s", (int)(base - file), file);
	if (!realpath(slash ? given : ".", dir)) {
		if (file[0] != '/' && !getcwd(dir, sizeof(dir)))
			return -errno;
		base = file;
	}
	return snprintf(absolute, PATH_MAX, "%s/%s", base[0] == '/' ? "" : dir, base) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static struct {
	unsigned count;   /* of questions. Both are atomic */
	const char *path; /* the present one's, or NULL */
} files_asked;

static void *files_say(void *arg)
{
	unsigned before = __atomic_load_n(&files_asked.count, __ATOMIC_ACQUIRE), now;
	const char *path = NULL;

	for (; !path; before = now) {
		sleep(FILES_SLOW_S);
		now = __atomic_load_n(&files_asked.count, __ATOMIC_ACQUIRE);
		if (now == before)
			path = __atomic_load_n(&files_asked.path, __ATOMIC_ACQUIRE);
	}
	cli_error("%s: its file system has not answered for %d s, and is waited for", path, FILES_SLOW_S);
	return arg;
}

void files_ask(const char *path)
{
	static bool said;
	pthread_t thread;

	__atomic_store_n(&files_asked.path, path, __ATOMIC_RELEASE);
	__atomic_add_fetch(&files_asked.count, 1, __ATOMIC_ACQ_REL);
	if (!said && pthread_create(&thread, NULL, files_say, NULL) == 0)
		pthread_detach(thread);
	said = true;
}

static int files_try(const char *file, char path[PATH_MAX])
{
	char absolute[PATH_MAX];
	int r;

	if (realpath(file, path))
		return 0;
	if (errno != ENOENT || !*file)
		return -errno;
	r = files_make_absolute(file, absolute);
	return r ? r : resolve_path(absolute, path);
}

int files_resolve(const char *file, char path[PATH_MAX])
{
	int ret;

	files_ask(file);
	ret = files_try(file, path);
	files_ask(NULL);
	return ret;
}

bool files_exist(const char *file)
{
	bool exist;

	files_ask(file);
	exist = access(file, F_OK) == 0;
	files_ask(NULL);
	return exist;
}
