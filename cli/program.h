/*
 * Will LD_PRELOAD=libdflock.so reach a program? Looks at the headers of its file, and asks the dynamic linker.
 */
#ifndef DFLOCK_CLI_PROGRAM_H
#define DFLOCK_CLI_PROGRAM_H

#include <limits.h>
#include <stdbool.h>

enum reach {
	REACH_YES,      /* as far as the file tells */
	REACH_ITSELF,   /* it takes locks, which are protected; those of what it starts are not */
	REACH_DOUBTFUL, /* loaded, but locks may be taken past it, or that cannot be found out */
	REACH_NO,       /* it runs, unprotected, or fails to start with the preload */
	REACH_CANNOT,   /* there is no such program, or it cannot be executed or examined */
};

#define PROGRAM_LINE_BYTES (2 * PATH_MAX)

struct program {
	enum reach reach;
	char line[PROGRAM_LINE_BYTES]; /* one line: what was found and what to do; with REACH_YES what runs it */
};

/*
 * name is searched in PATH if it has no slash. words: the arguments that the program is started with, which matter to
 * env(1), su(1) and similar programs; NULL: any. shim: path of libdflock.so. deep: ask the dynamic linker, too, which takes a
 * millisecond. A script is its interpreter ("#!"). Programs that clean the environment are known by name. System calls without
 * libc, and libraries and programs that come later, do not show in a file.
 */
void program_examine(const char *name, char *const words[], const char *shim, bool deep, struct program *out);

/* The libdflock.so of this installation. 0, or -errno if it is not there. */
int program_shim(char path[PATH_MAX]);

#endif
