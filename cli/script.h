/*
 * The interpreter of a script and the programs that it starts, as far as its text tells. Pure, except for reading the
 * file. A shell can compute any command: what is found is in the script, but not everything in it is found.
 */
#ifndef DFLOCK_CLI_SCRIPT_H
#define DFLOCK_CLI_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>

#define SCRIPT_WORD_BYTES   256
#define SCRIPT_MAX_COMMANDS 32

struct script_first {
	char interpreter[SCRIPT_WORD_BYTES];
	char argument[SCRIPT_WORD_BYTES]; /* all of it, as the kernel gives it; "" if there is none */
};

/* "#!INTERPRETER ARGUMENT". false: the file does not begin so. */
bool script_first_line(int fd, struct script_first *out);

/* The program that env(1) starts with this argument of a first line. False: it cannot be found out. *cleans:
 * LD_PRELOAD is removed. */
bool script_env(const char *argument, char program[SCRIPT_WORD_BYTES], bool *cleans);

/* Is this a shell whose scripts script_commands() can read? */
bool script_is_shell(const char *interpreter);

struct script_command {
	int line;
	char program[SCRIPT_WORD_BYTES]; /* "" if the text does not tell, such as "$JAVA" */
	char option[SCRIPT_WORD_BYTES];  /* its first argument that begins with -, or "" */
	bool exec;                       /* it takes the place of the shell */
	bool cleans; /* LD_PRELOAD is removed: by env -i or the like, or (then program is "") by unset */
};

/* The first commands of a shell script that are not the shell's own, at most `room`; prefixes such as nice are stepped
 * over. Reads 64 KiB at most. Returns how many. */
size_t script_commands(int fd, struct script_command *out, size_t room);

#endif
