/* See elf.h. */
#include "cli/elf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_S 10

/* Of a segment: its notes are at the beginning, and a program may have been made to be looked at for long. */
#define NOTES_MOST_BYTES 4096

/* The header of this program's own file, in memory: the linker defines the name. */
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

static bool elf_get(const struct elf *f, void *to, size_t size, uint64_t offset)
{
	if (offset > f->size || size > f->size - offset)
		return false;
	memcpy(to, f->bytes + offset, size);
	return true;
}

/* The Go linker leaves a note with its build id, owner "Go". A malformed note counts as none. */
static bool is_go_note(const struct elf *f, const ElfW(Phdr) * p)
{
	const uint64_t end = p->p_filesz < NOTES_MOST_BYTES ? p->p_filesz : NOTES_MOST_BYTES;
	uint64_t at = 0;
	ElfW(Nhdr) note;
	char owner[4];

	while (at < end && elf_get(f, &note, sizeof(note), p->p_offset + at)) {
		if (note.n_namesz == sizeof(owner) &&
		    elf_get(f, owner, sizeof(owner), p->p_offset + at + sizeof(note)) &&
		    !memcmp(owner, "Go\0", sizeof(owner)))
			return true;
		at += sizeof(note) + (((uint64_t)note.n_namesz + 3) & ~3ull) + (((uint64_t)note.n_descsz + 3) & ~3ull);
	}
	return false;
}

/* Where the sections cannot be read (a program may have none), nothing is said about imports. */
static void read_imports(struct elf *f)
{
	ElfW(Shdr) section = {0}, names;
	ElfW(Sym) symbol;
	char name[sizeof("syscall")];

	for (unsigned at = 0; section.sh_type != SHT_DYNSYM; at++)
		if (at == f->head.e_shnum || f->head.e_shentsize != sizeof(section) ||
		    !elf_get(f, &section, sizeof(section), f->head.e_shoff + (uint64_t)at * sizeof(section)))
			return;
	if (!elf_get(f, &names, sizeof(names), f->head.e_shoff + (uint64_t)section.sh_link * sizeof(names)))
		return;
	f->alone = true;
	/* The first symbol is always empty. */
	for (uint64_t at = sizeof(symbol); at < section.sh_size; at += sizeof(symbol)) {
		if (!elf_get(f, &symbol, sizeof(symbol), section.sh_offset + at))
			return;
		if (symbol.st_shndx != SHN_UNDEF)
			continue;
		f->alone = false;
		f->by_number |= elf_get(f, name, sizeof(name), names.sh_offset + symbol.st_name) &&
				!memcmp(name, "syscall", sizeof(name));
	}
}

/* False: the headers make no sense. */
static bool read_headers(struct elf *f)
{
	ElfW(Phdr) p;

	if (f->head.e_phentsize != sizeof(p))
		return false;
	for (unsigned i = 0; i < f->head.e_phnum; i++) {
		if (!elf_get(f, &p, sizeof(p), f->head.e_phoff + (uint64_t)i * sizeof(p)))
			return false;
		f->go |= p.p_type == PT_NOTE && is_go_note(f, &p);
		if (p.p_type != PT_INTERP)
			continue;
		if (p.p_offset > f->size || !memchr(f->bytes + p.p_offset, '\0', f->size - p.p_offset))
			return false;
		f->interpreter = f->bytes + p.p_offset;
	}
	if (f->interpreter)
		read_imports(f);
	return true;
}

const ElfW(Ehdr) * elf_own(void)
{
	return &__ehdr_start;
}

int elf_open(const char *path, struct elf *elf)
{
	ElfW(Ehdr) head = {0};
	struct stat st = {0};
	int ret;

	/* The interpreter of a script may be a pipe, which execve() refuses, and whose open() would wait. */
	*elf = (struct elf){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), .bytes = ""};
	if (elf->fd < 0)
		return -errno;
	if (!fstat(elf->fd, &st) && !S_ISREG(st.st_mode)) {
		close(elf->fd);
		return -EACCES;
	}
	if (st.st_size > 0)
		elf->bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, elf->fd, 0);
	if (elf->bytes == MAP_FAILED) {
		ret = -errno;
		close(elf->fd);
		return ret;
	}
	elf->size = (size_t)st.st_size;
	/* The head of a file of 32 bit is shorter, and the same as far as e_machine. */
	if (!elf_get(elf, &head, elf->size < sizeof(head) ? sizeof(Elf32_Ehdr) : sizeof(head), 0) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
		return 0;
	elf->head = head;
	elf->foreign = memcmp(head.e_ident, __ehdr_start.e_ident, EI_DATA + 1) != 0 ||
		       head.e_machine != __ehdr_start.e_machine;
	elf->damaged = !elf->foreign && !read_headers(elf);
	return 0;
}

void elf_close(struct elf *elf)
{
	if (elf->size)
		munmap((void *)elf->bytes, elf->size);
	close(elf->fd);
}

/* --- what the dynamic linker says --- */

const char *elf_own_linker(void)
{
	const char *base = (const char *)elf_own();
	const ElfW(Phdr) *p = (const void *)(base + elf_own()->e_phoff);

	for (unsigned i = 0; i < elf_own()->e_phnum; i++)
		if (p[i].p_type == PT_INTERP)
			return base + p[i].p_offset;
	return "";
}

/* LD_LIBRARY_PATH stays. */
static void __attribute__((noreturn)) become_linker(const char *program, const char *library, int out)
{
	static const char *const gone[] = {"LD_AUDIT",   "LD_DEBUG", "LD_DEBUG_OUTPUT",
					   "LD_VERBOSE", "LD_WARN",  "LD_BIND_NOW"};
	int null = open("/dev/null", O_RDONLY);

	/* It may have the number of a standard descriptor that dflock was started without. */
	out = fcntl(out, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
		unsetenv(gone[i]);
	signal(SIGALRM, SIG_DFL);
	alarm(PATIENCE_S);
	if (dup2(null, 0) == 0 && dup2(out, 1) == 1 && dup2(out, 2) == 2 && setenv("LD_PRELOAD", library, 1) == 0)
		execl(elf_own_linker(), elf_own_linker(), "--list", program, (char *)NULL);
	_exit(126);
}

static int elf_ask_linker(const char *program, const char *library, char why[ELF_ANSWER_BYTES])
{
	char path[PATH_MAX], *line = NULL;
	int ends[2], status = 0;
	size_t room = 0;
	FILE *in = NULL;
	pid_t pid;

	/* A name without a slash would be searched for as a library. */
	if (!realpath(program ? program : "/proc/self/exe", path) || pipe2(ends, O_CLOEXEC))
		return -errno;
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		become_linker(path, library, ends[1]);
	close(ends[1]);
	in = fdopen(ends[0], "r");
	why[0] = '\0';
	/* Each library is a line that begins with a tab; other lines may be about other preloads. */
	while (in && getline(&line, &room, in) > 0)
		if (!why[0] && line[0] != '\t' && (strstr(line, library) || strstr(line, "error while loading")))
			snprintf(why, ELF_ANSWER_BYTES, "%.*s", (int)strcspn(line, "\n"), line);
	free(line);
	if (in)
		fclose(in);
	while (pid > 0 && waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (pid < 0 || !in)
		return -ENOMEM;
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGALRM ? -ETIMEDOUT : -EIO;
	return why[0] ? 0 : WEXITSTATUS(status) ? -EIO : 1;
}

int elf_can_preload(const char *program, const char *library, char why[ELF_ANSWER_BYTES])
{
	const struct sigaction usual = {.sa_handler = SIG_DFL};
	struct sigaction before;
	int ret;

	/* A parent may have left it ignored: then no child could be waited for. */
	sigaction(SIGCHLD, &usual, &before);
	ret = elf_ask_linker(program, library, why);
	sigaction(SIGCHLD, &before, NULL);
	return ret;
}
