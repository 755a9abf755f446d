/*
 * The shared libraries that a program is linked with, as its dynamic linker finds them: with the settings of this
 * process, but without preloads. Those that a program loads later (plugins, modules) are not among them.
 */
#ifndef DFLOCK_CLI_LIBRARIES_H
#define DFLOCK_CLI_LIBRARIES_H

#include <stdbool.h>
#include <stddef.h>

struct libraries {
	char **paths; /* of count files */
	size_t count;
	const char *libc; /* the entry of libc; NULL: there is none */
	char *missing;    /* the name of a library that was not found; NULL: all were found */
};

/*
 * interpreter: the program's dynamic linker. Runs it with --list, which reads the program and its libraries and
 * executes nothing of them. It must be the dynamic linker of this program itself: a file that the examined program
 * names must not be run. 0; -EXDEV: it is another one; -EIO: unexpected output; -ETIMEDOUT (10 s); -ENOMEM; other
 * -errno. Free with libraries_free(), also after an error.
 */
int libraries_list(const char *program, const char *interpreter, struct libraries *out);
void libraries_free(struct libraries *libraries);

/* Can the dynamic linker of this program preload a library by this name or path? 1: yes, 0: no; or -errno as above.
 * Runs it as above. The name has no space and no colon. */
int libraries_can_preload(const char *name);

/* Is this one of libc's own files: a library whose calls the preload replaces, or the dynamic linker? */
bool libraries_is_libc(const struct libraries *libraries, const char *path);

/* The newest version of glibc's interface that the library knows, as 2028 for 2.28; 0: none was found, or it cannot be
 * read. */
int libraries_glibc(const char *libc);

#endif
