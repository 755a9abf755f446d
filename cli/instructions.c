/*
 * See instructions.h.
 *
 * x86-64. The bytes of syscall, sysenter and int $0x80 are searched for in the executable parts. Code can only be
 * decoded from where an instruction begins, and the table of functions for unwinding says where functions do. A place
 * that the decoder steps over is inside of another instruction. A place that it does not reach, because something in
 * front is no instruction that it knows, is unclear, as are all places if there is no table.
 *
 * The number of the call is known if it was loaded as a constant into %eax, and if nothing wrote %eax and no jump
 * arrives between there and the instruction. Jumps through a table (switch) and from other functions are not seen;
 * compilers put no label of either kind between the constant and the call that it is for.
 *
 * arm64. Instructions have four bytes and begin at multiples of four; the number is in x8.
 */
#include "cli/instructions.h"

#include <Zydis/Zydis.h>
#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_CODE_BYTES (512u << 20) /* in one file; the largest known program has a third of that */
#define CHUNK_BYTES    (1u << 20)
#define MAX_PLACES     100000
#define MAX_FUNCTION                                                                                                   \
	(1u                                                                                                            \
	 << 20) /* what is decoded for a place; the largest functions are tables in generated parsers               \
		    */

enum kind { KIND_LOCK, KIND_UNKNOWN, KIND_UNCLEAR, KIND_OTHER };

static void count(struct instructions *out, enum kind kind, uint64_t address)
{
	unsigned *const counts[] = {&out->locks, &out->unknown, &out->unclear, &out->others};
	bool first = true;

	for (unsigned graver = 0; graver <= kind; graver++)
		first = first && !*counts[graver];
	if (first)
		out->first = address;
	++*counts[kind];
}

static int read_code(int fd, void *to, size_t size, uint64_t offset)
{
	for (size_t have = 0; have < size;) {
		ssize_t n = offset + have > INT64_MAX
				    ? -1
				    : pread(fd, (char *)to + have, size - have, (off_t)(offset + have));

		if (n <= 0)
			return -ENOEXEC;
		have += (size_t)n;
	}
	return 0;
}

/* Addresses, in increasing order. */
struct places {
	uint64_t *at;
	size_t count, room;
};

static int add_place(struct places *places, uint64_t address)
{
	if (places->count == MAX_PLACES)
		return -EFBIG;
	if (places->count == places->room) {
		size_t room = places->room ? 2 * places->room : 256;
		uint64_t *at = reallocarray(places->at, room, sizeof(*at));

		if (!at)
			return -ENOMEM;
		places->at = at;
		places->room = room;
	}
	places->at[places->count++] = address;
	return 0;
}

/* --- x86-64 --- */

static bool is_call(const unsigned char *p)
{
	return (p[0] == 0x0f && (p[1] == 0x05 || p[1] == 0x34)) || (p[0] == 0xcd && p[1] == 0x80);
}

static int find_places(int fd, const struct elf_part *part, unsigned char *chunk, struct places *places)
{
	int ret = 0;

	for (uint64_t at = 0; at + 1 < part->bytes && !ret; at += CHUNK_BYTES - 1) {
		size_t size = part->bytes - at < CHUNK_BYTES ? (size_t)(part->bytes - at) : CHUNK_BYTES;

		ret = read_code(fd, chunk, size, part->offset + at);
		for (size_t i = 0; !ret && i + 1 < size; i++)
			if (is_call(chunk + i))
				ret = add_place(places, part->address + at + i);
	}
	return ret;
}

/* Where functions begin, in increasing order; the table of .eh_frame_hdr in the one form that linkers write. */
struct functions {
	uint64_t *at;
	size_t count;
};

static int by_address(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int read_functions(int fd, const struct elf_part *frames, struct functions *out)
{
	struct {
		unsigned char version, pointer, counter, table;
		int32_t frame;
		uint32_t count;
	} head;
	int32_t *rows;
	int ret;

	*out = (struct functions){.at = NULL};
	if (frames->bytes < sizeof(head) || read_code(fd, &head, sizeof(head), frames->offset) || head.version != 1 ||
	    head.pointer != 0x1b || head.counter != 0x03 || head.table != 0x3b ||
	    head.count > (frames->bytes - sizeof(head)) / 8 || !head.count || head.count > MAX_CODE_BYTES / 64)
		return 0;
	rows = calloc(head.count, 8);
	out->at = calloc(head.count, sizeof(*out->at));
	ret = rows && out->at ? read_code(fd, rows, (size_t)head.count * 8, frames->offset + sizeof(head)) : -ENOMEM;
	for (uint32_t i = 0; !ret && i < head.count; i++)
		out->at[out->count++] = frames->address + (uint64_t)(int64_t)rows[2 * (size_t)i];
	free(rows);
	if (!ret)
		qsort(out->at, out->count, sizeof(*out->at), by_address);
	return ret;
}

/* The function that contains the address: the last one that begins at or before it. SIZE_MAX: none. */
static size_t function_of(const struct functions *functions, uint64_t address)
{
	size_t low = 0, high = functions->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (functions->at[middle] <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? low - 1 : SIZE_MAX;
}

struct decoded {
	ZydisDecodedInstruction ins;
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
};

static bool decode(const ZydisDecoder *decoder, const unsigned char *code, size_t size, struct decoded *out)
{
	return ZYAN_SUCCESS(ZydisDecoderDecodeFull(decoder, code, size, &out->ins, out->operands));
}

/* Marks where the direct jumps of the function arrive. */
static void mark_targets(const ZydisDecoder *decoder, const unsigned char *code, size_t size, unsigned char *target)
{
	struct decoded d;

	memset(target, 0, size);
	for (size_t at = 0; at < size && decode(decoder, code + at, size - at, &d); at += d.ins.length) {
		const ZydisDecodedOperand *o = &d.operands[0];
		int64_t to;

		if (d.ins.operand_count == 0 || o->type != ZYDIS_OPERAND_TYPE_IMMEDIATE || !o->imm.is_relative ||
		    d.ins.meta.category == ZYDIS_CATEGORY_CALL)
			continue;
		to = (int64_t)(at + d.ins.length) + o->imm.value.s;
		if (to >= 0 && (uint64_t)to < size)
			target[to] = 1;
	}
}

static bool is_rax(ZydisRegister reg)
{
	return reg == ZYDIS_REGISTER_RAX || reg == ZYDIS_REGISTER_EAX;
}

/* Is %eax a known constant after this instruction? Then *number has it. *pushed: the constant on the stack, or -1. */
static bool follow_number(const struct decoded *d, bool known, int64_t *number, int64_t *pushed)
{
	const ZydisDecodedOperand *o = d->operands;
	const int64_t was = *pushed;

	*pushed = -1;
	if (d->ins.mnemonic == ZYDIS_MNEMONIC_PUSH && o[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
		*pushed = o[0].imm.value.s;
		return known;
	}
	if (o[0].type == ZYDIS_OPERAND_TYPE_REGISTER && is_rax(o[0].reg.value)) {
		if (d->ins.mnemonic == ZYDIS_MNEMONIC_MOV && o[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE)
			return *number = o[1].imm.value.s, true;
		if (d->ins.mnemonic == ZYDIS_MNEMONIC_XOR && o[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    is_rax(o[1].reg.value))
			return *number = 0, true;
		if (d->ins.mnemonic == ZYDIS_MNEMONIC_POP && was >= 0)
			return *number = was, true;
	}
	switch (d->ins.meta.category) {
	case ZYDIS_CATEGORY_CALL:
	case ZYDIS_CATEGORY_UNCOND_BR:
	case ZYDIS_CATEGORY_RET:
	case ZYDIS_CATEGORY_SYSCALL:
	case ZYDIS_CATEGORY_INTERRUPT:
		return false;
	default:
		break;
	}
	for (unsigned i = 0; i < d->ins.operand_count; i++)
		if (o[i].type == ZYDIS_OPERAND_TYPE_REGISTER && o[i].actions & ZYDIS_OPERAND_ACTION_MASK_WRITE &&
		    ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, o[i].reg.value) == ZYDIS_REGISTER_RAX)
			return false;
	return known;
}

static enum kind kind_of(const struct decoded *d, bool known, int64_t number)
{
	/* int $0x80 and sysenter take the numbers of 32-bit calls, which no compiler for 64 bits uses. */
	if (d->ins.mnemonic != ZYDIS_MNEMONIC_SYSCALL || !known)
		return KIND_UNKNOWN;
	number &= 0xbfffffff; /* the bit of x32 */
	return number == 72 || number == 73 ? KIND_LOCK : KIND_OTHER;
}

/* Decodes the function at `start` and counts the places in it, which are all below start + size. */
static void decode_function(const unsigned char *code, size_t size, uint64_t start, unsigned char *target,
			    const uint64_t *places, size_t place_count, struct instructions *out)
{
	ZydisDecoder decoder;
	struct decoded d;
	int64_t number = -1, pushed = -1;
	bool known = false;
	size_t at = 0, next = 0;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	mark_targets(&decoder, code, size, target);
	while (next < place_count && decode(&decoder, code + at, size - at, &d)) {
		if (target[at])
			known = false, pushed = -1;
		/* A prefix may stand in front. */
		if (places[next] < start + at + d.ins.length) {
			bool is = d.ins.mnemonic == ZYDIS_MNEMONIC_SYSCALL ||
				  d.ins.mnemonic == ZYDIS_MNEMONIC_SYSENTER || d.ins.mnemonic == ZYDIS_MNEMONIC_INT;

			if (is)
				count(out, kind_of(&d, known, number), places[next]);
			while (next < place_count && places[next] < start + at + d.ins.length)
				next++;
		}
		known = follow_number(&d, known, &number, &pushed);
		at += d.ins.length;
	}
	for (; next < place_count; next++)
		count(out, KIND_UNCLEAR, places[next]);
}

static const struct elf_part *part_of(const struct elf_facts *elf, uint64_t address)
{
	for (unsigned i = 0; i < elf->code_count; i++)
		if (address >= elf->code[i].address && address - elf->code[i].address < elf->code[i].bytes)
			return &elf->code[i];
	return NULL;
}

/* Looks at the places, from the first one on, that are in the same function as the first; returns their number. */
static size_t look_at_functions(int fd, const struct elf_facts *elf, const struct functions *functions,
				const struct places *places, size_t first, unsigned char *code, unsigned char *target,
				struct instructions *out)
{
	const struct elf_part *part = part_of(elf, places->at[first]);
	const size_t function = function_of(functions, places->at[first]);
	uint64_t start, end;
	size_t n = 1;

	if (function == SIZE_MAX || part_of(elf, functions->at[function]) != part)
		goto unclear;
	start = functions->at[function];
	end = function + 1 < functions->count ? functions->at[function + 1] : UINT64_MAX;
	if (end > part->address + part->bytes)
		end = part->address + part->bytes;
	if (end - start > MAX_FUNCTION)
		end = start + MAX_FUNCTION;
	if (places->at[first] >= end ||
	    read_code(fd, code, (size_t)(end - start), part->offset + (start - part->address)))
		goto unclear;
	while (first + n < places->count && places->at[first + n] < end)
		n++;
	decode_function(code, (size_t)(end - start), start, target, places->at + first, n, out);
	return n;
unclear:
	count(out, KIND_UNCLEAR, places->at[first]);
	return 1;
}

static int find_x86_64(int fd, const struct elf_facts *elf, unsigned char *buffer, struct instructions *out)
{
	struct places places = {.at = NULL};
	struct functions functions = {.at = NULL};
	int ret = 0;

	for (unsigned i = 0; i < elf->code_count && !ret; i++)
		ret = find_places(fd, &elf->code[i], buffer, &places);
	if (!ret)
		ret = read_functions(fd, &elf->frames, &functions);
	if (!ret && places.count)
		qsort(places.at, places.count, sizeof(*places.at), by_address);
	for (size_t i = 0; !ret && i < places.count;)
		i += look_at_functions(fd, elf, &functions, &places, i, buffer, buffer + CHUNK_BYTES, out);
	free(places.at);
	free(functions.at);
	return ret;
}

/* --- arm64 --- */

static int find_arm64(int fd, const struct elf_facts *elf, unsigned char *buffer, struct instructions *out)
{
	uint32_t *words = (uint32_t *)(void *)buffer;

	for (unsigned i = 0; i < elf->code_count; i++) {
		const struct elf_part *part = &elf->code[i];
		long number = -1;

		for (uint64_t at = 0; at + 4 <= part->bytes; at += CHUNK_BYTES) {
			size_t size = part->bytes - at < CHUNK_BYTES ? (size_t)(part->bytes - at) : CHUNK_BYTES;

			if (read_code(fd, buffer, size, part->offset + at))
				return -ENOEXEC;
			for (size_t w = 0; w < size / 4; w++) {
				/* movz w8 or x8, #number. Anything else that may write x8, or jump, ends the
				 * search within a few steps. */
				if ((words[w] & 0x7fe0001f) == 0x52800008)
					number = (long)(words[w] >> 5 & 0xffff) | 8L << 32;
				else if (number >= 0 && number >> 32 == 0)
					number = -1;
				else if (number >= 0)
					number -= 1L << 32;
				if (words[w] != 0xd4000001)
					continue;
				count(out,
				      number < 0                                                   ? KIND_UNKNOWN
				      : (number & 0xffffffff) == 32 || (number & 0xffffffff) == 25 ? KIND_LOCK
												   : KIND_OTHER,
				      part->address + at + 4 * w);
			}
		}
	}
	return 0;
}

int instructions_find(int fd, const struct elf_facts *elf, struct instructions *out)
{
	unsigned char *buffer;
	uint64_t total = 0;
	int ret = -ENOTSUP;

	*out = (struct instructions){.locks = 0};
	for (unsigned i = 0; i < elf->code_count; i++)
		if (elf->code[i].bytes > MAX_CODE_BYTES || (total += elf->code[i].bytes) > MAX_CODE_BYTES)
			return -EFBIG;
	if (elf->more_code)
		return -EFBIG;
	buffer = malloc(CHUNK_BYTES + MAX_FUNCTION);
	if (!buffer)
		return -ENOMEM;
	if (elf->machine == EM_X86_64 && elf->class == ELFCLASS64)
		ret = find_x86_64(fd, elf, buffer, out);
	else if (elf->machine == EM_AARCH64)
		ret = find_arm64(fd, elf, buffer, out);
	free(buffer);
	return ret;
}
