/* What an ELF file's headers, and the dynamic linker of this machine, say about a preload into it. */
#ifndef DFLOCK_CLI_ELF_H
#define DFLOCK_CLI_ELF_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct elf_facts {
	unsigned char class, data; /* EI_CLASS, EI_DATA */
	uint16_t machine;
	/* Of files of this program's own class and byte order alone: */
	bool dynamic;               /* it has a dynamic linker */
	char interpreter[PATH_MAX]; /* that linker; "" if not dynamic */
	bool go;                    /* made by the Go tool chain, whose programs make system calls without libc */
	bool alone;                 /* it imports nothing, so not libc's functions either */
	bool by_number;             /* it imports syscall() */
};

/* Reads the facts from an open file. 0; -ENOEXEC: no ELF file, or a malformed one; else -errno. */
int elf_read(int fd, struct elf_facts *out);

#define ELF_ANSWER_BYTES 1024

/*
 * Can the dynamic linker preload a library, by this name or path, into a program (NULL: this program)? interpreter: the
 * program's dynamic linker, which is run with --list: that reads the files and executes nothing of them. It must be
 * the dynamic linker of this program: a file that the examined program names must not be run. 1: yes; 0: no, and the
 * linker's line is in why; -EXDEV: it is another linker; -ETIMEDOUT (10 s); -EIO: unexpected output; other -errno.
 */
int elf_can_preload(const char *program, const char *interpreter, const char *library, char why[ELF_ANSWER_BYTES]);

#endif
