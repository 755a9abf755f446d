/*
 * What the subcommands of dflock share. Each is one function, cmd_NAME(argc, argv), with argv[0] "dflock NAME" (argp
 * shows it in the usage), that returns the exit status.
 */
#ifndef DFLOCK_CLI_CLI_H
#define DFLOCK_CLI_CLI_H

#include <argp.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/place.h"

enum cli_exit {
	CLI_OK = 0,
	CLI_FAILED = 1,          /* it could not be done, or a check found a problem */
	CLI_USAGE = 2,           /* the command line makes no sense */
	CLI_BREAK_NOBODY = 3,    /* break: no host holds the lock, or the host is not known */
	CLI_RUN_NOT_TAKEN = 122, /* run --require=taken: the job got no lock on a protected file */
	CLI_RUN_UNFIT = 123,     /* run --require: the job was not started, since its locks would not be protected */
	/* run, as env(1) has them */
	CLI_RUN_FAILED = 125,
	CLI_RUN_CANNOT_EXECUTE = 126,
	CLI_RUN_NOT_FOUND = 127,
};

#define CLI_LINE_BYTES 1024 /* room for one message */

/* What to do without a configuration. */
#define CLI_WRITE_ONE "write ~/.config/dflock.conf or /etc/dflock.conf (see dflock.conf(5)), or set DFLOCK_CONFIG"

int cmd_run(int argc, char **argv);
int cmd_lock(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_top(int argc, char **argv); /* as check, doctor and wrap: in dflock-doctor */
int cmd_wrap(int argc, char **argv);
int cmd_metrics(int argc, char **argv);
int cmd_break(int argc, char **argv);
int cmd_fence(int argc, char **argv);
int cmd_who(int argc, char **argv);
int cmd_init(int argc, char **argv);
int cmd_reload(int argc, char **argv);
int cmd_log_level(int argc, char **argv);
int cmd_stop(int argc, char **argv);

/* "dflock: MESSAGE" on standard error, with control characters made visible. */
void cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for a line that is there already. Returns CLI_FAILED. */
int cli_fail(const char *why);

/*
 * Reads the command line of a subcommand. known ends with {0}, or is NULL; for known[i] into[i] is a const char ** that gets the
 * option's value, or, of an option without one, a bool * that becomes true. args: its arguments, as the usage shows them: "LOCK",
 * which must be there; "[LOCK]"; "[FILE...]"; NULL: none. doc is the subcommand's help. Returns how many arguments there are: the
 * last ones in argv. What makes no sense ends the process with a line.
 */
int cli_options(int argc, char **argv, const char *doc, const char *args, const struct argp_option *known,
		void *const *into);

/* Ends the process with a line, because of options that do not go together. */
void cli_misused(char **argv, const char *why) __attribute__((noreturn));

/* cli_options() for a subcommand whose only option is --force, which does what `help` says. Was it given? */
bool cli_force(int argc, char **argv, const char *doc, const char *help);

/* The exit status of the process: `status` of the subcommand, unless its output could not be written, which a line says. */
int cli_end(int status);

/* A number from 1 to `most`. 0: the text is none. */
int cli_number(const char *text, int most);

/* CLOCK_BOOTTIME, for deadlines. */
int64_t cli_now_ms(void);

/* place_init(), then the configuration that the command line names (NULL: none), made absolute. */
void cli_place(struct place *place, const char *config);

/*
 * Asks the keeper that runs (it starts none) for the lease of `lock`, a file or a lock name, under which process pid or one
 * above it holds the lock. any: else the only lease that any process on this host holds. True with *fence; else false with
 * one line in why. Waits as long as ask_status() does.
 */
bool fence_find(const char *lock, pid_t pid, bool any, int64_t *fence, char why[CLI_LINE_BYTES]);

/* The name as a file name, behind which the lock is (its lock name is CONFIG_NAMES and this): what could be a path, or hide
 * the file, becomes %XX. False: it is too long for one. */
bool cli_lock_file(const char *name, char file[NAME_MAX + 1]);

/*
 * The path as the kernel shows it for an open descriptor of the file: links are resolved as far as they exist, and what
 * does not exist yet follows as it is written. 0 or -errno.
 */
int files_resolve(const char *file, char path[PATH_MAX]);
/* Does the file exist, for this user? */
bool files_exist(const char *file);

/*
 * Around calls on a file whose file system may not answer: files_ask(path), which stays valid for as long as the process, and then
 * files_ask(NULL). A thread says in one line that they wait, once for the process. files_resolve() and files_exist() do that.
 */
void files_ask(const char *path);

#endif
