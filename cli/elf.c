/* See elf.h. Files of another class or byte order have another machine, and no other field of theirs matters. */
#include "cli/elf.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_HEADERS 1024        /* the kernel accepts at most 64 KiB of program headers */
#define MAX_TABLE   (16u << 20) /* of imported names; a larger one is not read */
#define MAX_ANSWER  (1u << 20)
#define PATIENCE_S  10

#define OWN_CLASS (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)
#define OWN_DATA  (BYTE_ORDER == LITTLE_ENDIAN ? ELFDATA2LSB : ELFDATA2MSB)

static int elf_read_at(int fd, void *to, size_t size, uint64_t offset)
{
	ssize_t n = offset > INT64_MAX ? -1 : pread(fd, to, size, (off_t)offset);

	return n == (ssize_t)size ? 0 : -ENOEXEC;
}

static int read_interpreter(int fd, const ElfW(Phdr) * p, struct elf_facts *out)
{
	if (p->p_filesz < 2 || p->p_filesz > sizeof(out->interpreter) ||
	    elf_read_at(fd, out->interpreter, p->p_filesz, p->p_offset) || out->interpreter[p->p_filesz - 1])
		return -ENOEXEC;
	out->dynamic = true;
	return 0;
}

/* The Go linker leaves a note with its build id, owner "Go". A malformed note counts as none. */
static bool is_go_note(int fd, const ElfW(Phdr) * p)
{
	uint64_t at = 0;

	for (int i = 0; i < 64 && at + sizeof(ElfW(Nhdr)) <= p->p_filesz; i++) {
		ElfW(Nhdr) note;
		char owner[4];

		if (elf_read_at(fd, &note, sizeof(note), p->p_offset + at))
			return false;
		if (note.n_namesz == sizeof(owner) &&
		    !elf_read_at(fd, owner, sizeof(owner), p->p_offset + at + sizeof(note)) &&
		    !memcmp(owner, "Go\0", sizeof(owner)))
			return true;
		at += sizeof(note) + (((uint64_t)note.n_namesz + 3) & ~3ull) + (((uint64_t)note.n_descsz + 3) & ~3ull);
	}
	return false;
}

/* A section, to be freed; NULL: it is malformed, or too large. */
static void *read_section(int fd, const ElfW(Shdr) * s)
{
	void *data = s->sh_size && s->sh_size <= MAX_TABLE ? malloc(s->sh_size) : NULL;

	if (data && elf_read_at(fd, data, s->sh_size, s->sh_offset)) {
		free(data);
		return NULL;
	}
	return data;
}

/* Where the sections cannot be read (a program may have none), nothing is said about imports. */
static void read_imports(int fd, const ElfW(Ehdr) * head, struct elf_facts *out)
{
	ElfW(Shdr) section = {0}, names = {0};
	char *text = NULL;
	ElfW(Sym) *symbols = NULL;
	unsigned at = 0;

	if (head->e_shentsize != sizeof(section))
		return;
	while (section.sh_type != SHT_DYNSYM)
		if (at == head->e_shnum ||
		    elf_read_at(fd, &section, sizeof(section), head->e_shoff + (uint64_t)at++ * sizeof(section)))
			return;
	if (section.sh_link >= head->e_shnum ||
	    elf_read_at(fd, &names, sizeof(names), head->e_shoff + (uint64_t)section.sh_link * sizeof(names)))
		return;
	symbols = read_section(fd, &section);
	text = symbols ? read_section(fd, &names) : NULL;
	out->alone = text;
	/* The first symbol is always empty. */
	for (size_t i = 1; text && i < section.sh_size / sizeof(*symbols); i++) {
		if (symbols[i].st_shndx != SHN_UNDEF)
			continue;
		out->alone = false;
		if (symbols[i].st_name < names.sh_size && names.sh_size - symbols[i].st_name >= sizeof("syscall") &&
		    !memcmp(text + symbols[i].st_name, "syscall", sizeof("syscall")))
			out->by_number = true;
	}
	free(text);
	free(symbols);
}

int elf_read(int fd, struct elf_facts *out)
{
	ElfW(Ehdr) head = {0};

	memset(out, 0, sizeof(*out));
	/* The head of a file of 32 bit is shorter, and the same as far as e_machine. */
	if (elf_read_at(fd, &head, sizeof(Elf32_Ehdr), 0) || memcmp(head.e_ident, ELFMAG, SELFMAG))
		return -ENOEXEC;
	out->class = head.e_ident[EI_CLASS];
	out->data = head.e_ident[EI_DATA];
	out->machine = head.e_machine;
	if (out->class != OWN_CLASS || out->data != OWN_DATA)
		return 0;
	if (elf_read_at(fd, &head, sizeof(head), 0) || head.e_phentsize != sizeof(ElfW(Phdr)) ||
	    head.e_phnum > MAX_HEADERS)
		return -ENOEXEC;
	for (unsigned i = 0; i < head.e_phnum; i++) {
		ElfW(Phdr) p;

		if (elf_read_at(fd, &p, sizeof(p), head.e_phoff + (uint64_t)i * sizeof(p)))
			return -ENOEXEC;
		if (p.p_type == PT_INTERP && read_interpreter(fd, &p, out))
			return -ENOEXEC;
		if (p.p_type == PT_NOTE && is_go_note(fd, &p))
			out->go = true;
	}
	if (out->dynamic)
		read_imports(fd, &head, out);
	return 0;
}

/* --- what the dynamic linker says --- */

static int own_interpreter(struct elf_facts *own)
{
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), ret;

	if (fd < 0)
		return -errno;
	ret = elf_read(fd, own);
	close(fd);
	return ret;
}

/* LD_LIBRARY_PATH stays. */
static void __attribute__((noreturn))
become_linker(const char *program, const char *linker, const char *library, int out)
{
	static const char *const gone[] = {"LD_AUDIT",   "LD_DEBUG", "LD_DEBUG_OUTPUT",
					   "LD_VERBOSE", "LD_WARN",  "LD_BIND_NOW"};
	int null = open("/dev/null", O_RDONLY);

	for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
		unsetenv(gone[i]);
	signal(SIGALRM, SIG_DFL);
	alarm(PATIENCE_S);
	if (dup2(null, 0) == 0 && dup2(out, 1) == 1 && dup2(out, 2) == 2 && setenv("LD_PRELOAD", library, 1) == 0)
		execl(linker, linker, "--list", program, (char *)NULL);
	_exit(126);
}

/* All that the linker says, in *text, which the caller frees. Its exit status, or -errno. */
static int list_by_linker(const char *program, const char *linker, const char *library, char **text)
{
	int ends[2], status, ret = 0;
	size_t have;
	FILE *in;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		become_linker(program, linker, library, ends[1]);
	ret = pid < 0 ? -errno : 0;
	close(ends[1]);
	*text = malloc(MAX_ANSWER);
	in = fdopen(ends[0], "r");
	have = *text && in ? fread(*text, 1, MAX_ANSWER - 1, in) : 0;
	if (*text)
		(*text)[have] = '\0';
	if (in)
		fclose(in); /* a linker that says more gets SIGPIPE */
	else
		close(ends[0]);
	while (pid > 0 && waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (ret || !*text || !in)
		return ret ? ret : -ENOMEM;
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGALRM ? -ETIMEDOUT : -EIO;
	return strlen(*text) == have ? WEXITSTATUS(status) : -EIO;
}

int elf_can_preload(const char *program, const char *interpreter, const char *library, char why[ELF_ANSWER_BYTES])
{
	char path[PATH_MAX], *text = NULL, *line, *rest;
	struct elf_facts own;
	struct stat a, b;
	int ret = own_interpreter(&own);

	if (ret)
		return ret;
	if (program &&
	    (stat(own.interpreter, &a) || stat(interpreter, &b) || a.st_dev != b.st_dev || a.st_ino != b.st_ino))
		return -EXDEV;
	/* A name without a slash would be searched for as a library. */
	if (!realpath(program ? program : "/proc/self/exe", path))
		return -errno;
	why[0] = '\0';
	ret = list_by_linker(path, own.interpreter, library, &text);
	/* Each library is a line that begins with a tab; other lines may be about other preloads. */
	for (rest = text; ret >= 0 && !why[0] && (line = strsep(&rest, "\n"));)
		if (line[0] != '\t' && (strstr(line, library) || strstr(line, "error while loading")))
			snprintf(why, ELF_ANSWER_BYTES, "%s", line);
	free(text);
	if (ret < 0)
		return ret;
	return why[0] ? 0 : ret ? -EIO : 1;
}
