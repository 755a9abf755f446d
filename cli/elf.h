/* The few things about an ELF file that decide whether a library can be preloaded into it, and where its code is. */
#ifndef DFLOCK_CLI_ELF_H
#define DFLOCK_CLI_ELF_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELF_MAX_CODE 16

/* A part of the file, and its address relative to the place where the file is loaded. */
struct elf_part {
	uint64_t offset, bytes, address;
};

struct elf_facts {
	unsigned char class, data; /* EI_CLASS, EI_DATA */
	uint16_t type, machine;
	bool dynamic;               /* it has a dynamic linker */
	char interpreter[PATH_MAX]; /* that linker; "" if not dynamic */
	bool go;                    /* made by the Go tool chain, whose programs make system calls without libc */
	/* Executable parts; more_code: there are more than these. A file of the other byte order has none here. */
	struct elf_part code[ELF_MAX_CODE];
	unsigned code_count;
	bool more_code;
	struct elf_part frames; /* the table of functions for unwinding (.eh_frame_hdr); bytes 0: there is none */
};

/* Reads the facts from an open file. 0; -ENOEXEC: no ELF file, or a malformed one; else -errno. */
int elf_read(int fd, struct elf_facts *out);

#endif
