/* What the headers of a program's file, and the dynamic linker of this machine, say about a preload into it. */
#ifndef DFLOCK_CLI_ELF_H
#define DFLOCK_CLI_ELF_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>

/* An open file, mapped. */
struct elf {
	int fd;
	const char *bytes;
	size_t size;
	ElfW(Ehdr) head;         /* all zero: it is no ELF file. Of other machines only as far as e_machine */
	bool foreign;            /* for another machine than this program. Else: */
	bool damaged;            /* its headers make no sense */
	const char *interpreter; /* its dynamic linker; NULL: it has none */
	bool go;                 /* made by the Go tool chain, whose programs make system calls without libc */
	bool alone;              /* it imports nothing, so not libc's functions either */
	bool by_number;          /* it imports syscall() */
};

/* 0; end it with elf_close(). Or -errno. */
int elf_open(const char *path, struct elf *elf);
void elf_close(struct elf *elf);

/* The header and the dynamic linker of this program. libdflock.so is built for the same machine. */
const ElfW(Ehdr) * elf_own(void);
const char *elf_own_linker(void);

#define ELF_ANSWER_BYTES 1024

/*
 * Can the dynamic linker of this program preload a library, by this name or path, into a program (NULL: this one)? It is run with
 * --list, which reads the files and executes nothing of them. 1: yes; 0: no, and the linker's line is in why; -ETIMEDOUT (10 s); -EIO:
 * unexpected output; other -errno.
 */
int elf_can_preload(const char *program, const char *library, char why[ELF_ANSWER_BYTES]);

#endif
