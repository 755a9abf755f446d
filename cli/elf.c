#include "cli/elf.h"

#include <elf.h>
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

/* No program has more program headers than this (the kernel accepts at most 64 KiB of them). */
#define MAX_HEADERS 1024

/* A program header, of either class. */
struct segment {
	uint32_t type, flags;
	uint64_t offset, bytes, address;
};

static int elf_read_at(int fd, void *to, size_t size, uint64_t offset)
{
	ssize_t n = offset > INT64_MAX ? -1 : pread(fd, to, size, (off_t)offset);

	return n == (ssize_t)size ? 0 : -ENOEXEC;
}

static int read_segment(int fd, const struct elf_facts *facts, uint64_t offset, struct segment *out)
{
	if (facts->class == ELFCLASS64) {
		Elf64_Phdr p;

		if (elf_read_at(fd, &p, sizeof(p), offset))
			return -ENOEXEC;
		*out = (struct segment){p.p_type, p.p_flags, p.p_offset, p.p_filesz, p.p_vaddr};
	} else {
		Elf32_Phdr p;

		if (elf_read_at(fd, &p, sizeof(p), offset))
			return -ENOEXEC;
		*out = (struct segment){p.p_type, p.p_flags, p.p_offset, p.p_filesz, p.p_vaddr};
	}
	return 0;
}

static int read_interpreter(int fd, const struct segment *s, struct elf_facts *out)
{
	if (s->bytes < 2 || s->bytes > sizeof(out->interpreter) ||
	    elf_read_at(fd, out->interpreter, s->bytes, s->offset) || out->interpreter[s->bytes - 1])
		return -ENOEXEC;
	out->dynamic = true;
	return 0;
}

/* The Go linker leaves a note with its build id, owner "Go". A malformed note counts as none. */
static bool is_go_note(int fd, const struct segment *s)
{
	uint64_t at = 0;

	for (int i = 0; i < 64 && at + sizeof(Elf64_Nhdr) <= s->bytes; i++) {
		Elf64_Nhdr note; /* the same for both classes */
		char owner[4];

		if (elf_read_at(fd, &note, sizeof(note), s->offset + at))
			return false;
		if (note.n_namesz == sizeof(owner) &&
		    !elf_read_at(fd, owner, sizeof(owner), s->offset + at + sizeof(note)) &&
		    !memcmp(owner, "Go\0", sizeof(owner)))
			return true;
		at += sizeof(note) + (((uint64_t)note.n_namesz + 3) & ~3ull) + (((uint64_t)note.n_descsz + 3) & ~3ull);
	}
	return false;
}

static void note_code(const struct segment *s, struct elf_facts *out)
{
	const struct elf_part part = {s->offset, s->bytes, s->address};

	if (s->type == PT_GNU_EH_FRAME)
		out->frames = part;
	if (s->type != PT_LOAD || !(s->flags & PF_X) || !s->bytes)
		return;
	if (out->code_count < ELF_MAX_CODE)
		out->code[out->code_count++] = part;
	else
		out->more_code = true;
}

int elf_read(int fd, struct elf_facts *out)
{
	union {
		unsigned char ident[EI_NIDENT];
		Elf32_Ehdr h32;
		Elf64_Ehdr h64;
	} head;
	uint64_t headers;
	unsigned count, size;

	memset(out, 0, sizeof(*out));
	memset(&head, 0, sizeof(head));
	if (elf_read_at(fd, &head.h32, sizeof(head.h32), 0) || memcmp(head.ident, ELFMAG, SELFMAG))
		return -ENOEXEC;
	out->class = head.ident[EI_CLASS];
	out->data = head.ident[EI_DATA];
	out->type = head.h32.e_type;
	out->machine = head.h32.e_machine;
	/* In a file of the other byte order, no other field matters, so none has to be swapped. */
	if (out->data != (BYTE_ORDER == LITTLE_ENDIAN ? ELFDATA2LSB : ELFDATA2MSB))
		return 0;
	if (out->class == ELFCLASS64 && elf_read_at(fd, &head.h64, sizeof(head.h64), 0))
		return -ENOEXEC;
	headers = out->class == ELFCLASS64 ? head.h64.e_phoff : head.h32.e_phoff;
	count = out->class == ELFCLASS64 ? head.h64.e_phnum : head.h32.e_phnum;
	size = out->class == ELFCLASS64 ? head.h64.e_phentsize : head.h32.e_phentsize;
	if (size != (out->class == ELFCLASS64 ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr)) || count > MAX_HEADERS)
		return -ENOEXEC;
	for (unsigned i = 0; i < count; i++) {
		struct segment s;

		if (read_segment(fd, out, headers + (uint64_t)i * size, &s))
			return -ENOEXEC;
		note_code(&s, out);
		if (s.type == PT_INTERP && read_interpreter(fd, &s, out))
			return -ENOEXEC;
		if (s.type == PT_NOTE && is_go_note(fd, &s))
			out->go = true;
	}
	return 0;
}
