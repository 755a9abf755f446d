/*
 * Will LD_PRELOAD=libdflock.so reach a program? Looks at its file as the kernel and the dynamic linker will.
 */
#ifndef DFLOCK_CLI_PROGRAM_H
#define DFLOCK_CLI_PROGRAM_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

enum reach {
	REACH_YES,       /* as far as the file tells */
	REACH_ITSELF,    /* it takes locks, which are protected; those of what it starts are not */
	REACH_DOUBTFUL,  /* loaded, but locks may be taken past it, or that cannot be found out */
	REACH_NO,        /* it runs, unprotected, or fails to start with the preload */
	REACH_NOT_FOUND, /* no such program: execvp() would fail with ENOENT */
	REACH_CANNOT,    /* it is there and cannot be executed or examined */
};

#define PROGRAM_LINE_BYTES (2 * PATH_MAX)

struct program {
	enum reach reach;
	char path[PATH_MAX];           /* of the program, as execvp() finds it; "" for REACH_NOT_FOUND */
	char line[PROGRAM_LINE_BYTES]; /* one line: what was found and what to do; with REACH_YES what runs it */
};

/*
 * name is searched in PATH if it has no slash. shim: path of libdflock.so, whose class and machine the program's must
 * be. Follows "#!" to the interpreter, and looks at what a shell script starts first. Reads the program's file and
 * those of the libraries that it is linked with (by the dynamic linker, libraries.h), looks for system calls of their
 * own (instructions.h), and for programs that clean the environment (wrappers.h). Never REACH_YES where something of
 * this speaks against it. Says nothing of libraries and programs that come later.
 */
void program_examine(const char *name, const char *shim, struct program *out);

/* The same with the program's arguments, from argv[0] on: for env(1), su(1) and similar programs the result
 * depends on them. Not `deep`: no library, and no instruction, which take longer than the start of most programs. */
void program_examine_job(const char *name, char *const arguments[], const char *shim, bool deep, struct program *out);

/* Only the search. 0 and the path; -ENOENT, -EACCES, -ENAMETOOLONG. */
int program_find(const char *name, char path[PATH_MAX]);

/* The libdflock.so of this installation. 0, or -errno if it is not there. */
int program_shim(char path[PATH_MAX]);

#endif
