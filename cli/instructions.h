/*
 * The system call instructions in an ELF file. libc's functions can be preloaded; an instruction of a program's own
 * (Go, Rust's rustix, inline assembly) cannot be.
 *
 * What stands for such an instruction also occurs by chance: inside others, and in data. Each place is looked at by
 * decoding the function around it from its beginning; what cannot be told is counted as such, and never as nothing.
 */
#ifndef DFLOCK_CLI_INSTRUCTIONS_H
#define DFLOCK_CLI_INSTRUCTIONS_H

#include <stdint.h>

#include "cli/elf.h"

struct instructions {
	unsigned locks;   /* flock or fcntl, by the number that is loaded in front of it */
	unsigned unknown; /* the number comes from elsewhere: it may be any call */
	unsigned unclear; /* may be an instruction, may be data */
	unsigned others;  /* some other call */
	uint64_t first;   /* address of the first of the gravest kind that was found */
};

/*
 * Reads the code of an open file of this machine's architecture. 0; -EFBIG: too large to be read; -ENOTSUP: code of an
 * architecture whose instructions are not known here; -ENOMEM; -ENOEXEC: makes no sense.
 */
int instructions_find(int fd, const struct elf_facts *elf, struct instructions *out);

#endif
