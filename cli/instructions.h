/*
 * The system call instructions in an ELF file. libc's functions can be preloaded; a program's own instruction (Go,
 * Rust's rustix, inline assembly) cannot. The bytes of such an instruction also occur by chance, inside other
 * instructions and in data. So the function around each place is decoded from its beginning; a place that cannot be
 * decided is counted as unclear, and never dropped.
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
	uint64_t first;   /* address of the first place of the gravest kind that was found */
};

/*
 * Reads the code of an open file of this machine's architecture. 0; -EFBIG: too large to be read; -ENOTSUP: an
 * architecture whose instructions are not known here; -ENOMEM; -ENOEXEC: malformed.
 */
int instructions_find(int fd, const struct elf_facts *elf, struct instructions *out);

#endif
