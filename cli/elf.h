/* The few things about an ELF file that decide whether a library can be preloaded into it. */
#ifndef DFLOCK_CLI_ELF_H
#define DFLOCK_CLI_ELF_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct elf_facts {
	unsigned char class, data; /* EI_CLASS, EI_DATA */
	uint16_t type, machine;
	bool dynamic;               /* it has a dynamic linker */
	char interpreter[PATH_MAX]; /* that linker; "" if not dynamic */
	bool go;                    /* made by the Go tool chain, whose programs make system calls without libc */
};

/* Reads the facts from an open file. 0; -ENOEXEC: no ELF file, or one that makes no sense; else -errno. */
int elf_read(int fd, struct elf_facts *out);

#endif
