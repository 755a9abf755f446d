/*
 * Which calls the filter hands over: its program is played, for the calls of each kind of program. And what a caught call says, with struct
 * flock in the forms of each kind of program.
 */
#include <linux/seccomp.h>
#include <sys/file.h>

/* dflock-net is no part of the library that unit tests are linked with. */
#include "net/filter.c"
#include "net/lockcall.c"
#include "tests/unit/suite.h"

#define OVER SECCOMP_RET_USER_NOTIF
#define PASS SECCOMP_RET_ALLOW

static uint64_t key;

static unsigned play(const struct seccomp_data *data)
{
	struct filter filter;
	unsigned loaded = 0, kept = 0;

	filter_build(&filter, key);
	ck_assert_uint_le(filter.length, FILTER_MAX);
	for (unsigned at = 0; at < filter.length; at++) {
		const struct sock_filter *i = &filter.code[at];

		switch (i->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			ck_assert_uint_le(i->k + sizeof(loaded), sizeof(*data));
			memcpy(&loaded, (const char *)data + i->k, sizeof(loaded));
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			loaded &= i->k;
			break;
		case BPF_ALU | BPF_XOR | BPF_X:
			loaded ^= kept;
			break;
		case BPF_MISC | BPF_TAX:
			kept = loaded;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			at += loaded == i->k ? i->jt : i->jf;
			break;
		case BPF_RET | BPF_K:
			return i->k;
		default:
			ck_abort_msg("unknown instruction %x", i->code);
		}
	}
	ck_abort_msg("the program does not end");
	return 0;
}

static unsigned said(unsigned arch, unsigned number, uint64_t second)
{
	const struct seccomp_data data = {.nr = (int)number, .arch = arch, .args = {3, second, 0x1234}};

	return play(&data);
}

/* The number of flock(), those of fcntl() and their commands, by the kind of program. */
static const struct {
	unsigned arch, flock, fcntl;
	uint64_t caught; /* a bit for each command */
} kinds[] = {
#define BITS(a, b, c)   (UINT64_C(1) << (a) | UINT64_C(1) << (b) | UINT64_C(1) << (c))
#define NATIVE_COMMANDS (BITS(5, 6, 7) | BITS(36, 37, 38))
	{ABI_NATIVE, SYS_flock, SYS_fcntl, NATIVE_COMMANDS},
	{ABI_NARROW, ABI_NARROW_FLOCK, ABI_NARROW_FCNTL, BITS(5, 6, 7)},
	{ABI_NARROW, ABI_NARROW_FLOCK, ABI_NARROW_FCNTL64, BITS(5, 6, 7) | BITS(12, 13, 14) | BITS(36, 37, 38)},
};

TEST_EACH(flock_calls, ROWS(kinds))
{
	static const struct {
		uint64_t op;
		unsigned said;
	} ops[] = {
		{LOCK_SH, OVER},
		{LOCK_EX, OVER},
		{LOCK_EX | LOCK_NB, OVER},
		{LOCK_UN, PASS},
		{LOCK_UN | LOCK_NB, PASS},
		{LOCK_UN | LOCK_EX, OVER},
		{0, OVER},
		{UINT64_C(1) << 32 | LOCK_UN, PASS}, /* the kernel looks at the low half */
		{UINT64_C(1) << 32 | LOCK_EX, OVER},
	};

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		ck_assert_uint_eq(said(kinds[_i].arch, kinds[_i].flock, ops[i].op), ops[i].said);
}

TEST_EACH(fcntl_calls, ROWS(kinds))
{
	for (unsigned command = 0; command < 64; command++)
		ck_assert_uint_eq(said(kinds[_i].arch, kinds[_i].fcntl, command),
				  kinds[_i].caught >> command & 1 ? OVER : PASS);
	ck_assert_uint_eq(said(kinds[_i].arch, kinds[_i].fcntl, 1030), PASS);
	ck_assert_uint_eq(said(kinds[_i].arch, kinds[_i].fcntl, UINT64_C(7) << 32 | 7), OVER);
}

TEST(other_calls)
{
	for (unsigned number = 0; number < 600; number++) {
		if (number != kinds[0].flock && number != kinds[0].fcntl)
			ck_assert_uint_eq(said(ABI_NATIVE, number, 7), PASS);
		if (number != ABI_NARROW_FLOCK && number != ABI_NARROW_FCNTL && number != ABI_NARROW_FCNTL64)
			ck_assert_uint_eq(said(ABI_NARROW, number, 7), PASS);
		ck_assert_uint_eq(said(0x12345678, number, 7), PASS);
	}
	for (unsigned number = 0; ABI_X32_BIT && number < 600; number++)
		ck_assert_uint_eq(said(ABI_NATIVE, number | ABI_X32_BIT, 7), SECCOMP_RET_ERRNO | ENOSYS);
	ck_assert_uint_eq(said(ABI_NATIVE, ~0u, 7), PASS); /* a tracer has taken the call away */
}

/* With a key, what it lets pass, and nothing else. */
#define KEY UINT64_C(0x123456789abcdef0)
static unsigned keyed(unsigned number, uint64_t fd, uint64_t command, uint64_t sixth)
{
	const struct seccomp_data data = {
		.nr = (int)number, .arch = ABI_NATIVE, .args = {fd, command, 0x1234, 0, 0, sixth}};

	return play(&data);
}

TEST(keys)
{
	key = KEY;
	ck_assert_uint_eq(keyed(SYS_flock, 3, LOCK_EX, KEY ^ 3 ^ LOCK_EX), PASS);
	ck_assert_uint_eq(keyed(SYS_fcntl, 3, ABI_OFD_SETLK, KEY ^ 3 ^ ABI_OFD_SETLK), PASS);
	ck_assert_uint_eq(keyed(SYS_fcntl, UINT64_C(0xffffffff), ABI_SETLK, KEY ^ 0xffffffffu ^ ABI_SETLK), PASS);
	for (int bit = 0; bit < 64; bit++)
		ck_assert_uint_eq(keyed(SYS_flock, 3, LOCK_EX, KEY ^ 3 ^ LOCK_EX ^ UINT64_C(1) << bit), OVER);
	ck_assert_uint_eq(keyed(SYS_flock, 4, LOCK_EX, KEY ^ 3 ^ LOCK_EX), OVER); /* another call's */
	ck_assert_uint_eq(keyed(SYS_flock, 3, LOCK_SH, KEY ^ 3 ^ LOCK_EX), OVER);
	ck_assert_uint_eq(keyed(SYS_flock, 3, LOCK_EX, 0), OVER);
	ck_assert_uint_eq(keyed(SYS_fcntl, 3, ABI_SETLKW, 0), OVER);
	ck_assert_uint_eq(keyed(SYS_flock, 3, LOCK_UN, 0), PASS);
	ck_assert_uint_eq(keyed(SYS_fcntl, 3, F_GETFL, 0), PASS);
	ck_assert_uint_eq(keyed(SYS_read, 3, LOCK_EX, 0), PASS);
	key = 0;
	ck_assert_uint_eq(keyed(SYS_flock, 3, LOCK_EX, KEY ^ 3 ^ LOCK_EX), OVER);
	ck_assert_uint_eq(keyed(SYS_flock, 3, 3, 0), OVER); /* 0 ^ 3 ^ 3 */
}

/* --- what is caught --- */

static struct lockcall read_call(unsigned arch, unsigned number, uint64_t fd, uint64_t second, uint64_t third)
{
	const struct seccomp_data data = {.nr = (int)number, .arch = arch, .args = {fd, second, third}};
	struct lockcall call;

	lockcall_read(&data, &call);
	return call;
}

TEST(flock_is_read)
{
	struct lockcall call = read_call(ABI_NATIVE, SYS_flock, 7, LOCK_EX | LOCK_NB, 0);

	ck_assert_int_eq(call.kind, LOCKCALL_FLOCK);
	ck_assert_int_eq(call.fd, 7);
	ck_assert_int_eq(call.op, LOCK_EX | LOCK_NB);
	call = read_call(ABI_NARROW, ABI_NARROW_FLOCK, UINT64_C(5) << 32 | 9, LOCK_SH, 0);
	ck_assert_int_eq(call.kind, LOCKCALL_FLOCK);
	ck_assert_int_eq(call.fd, 9);
	/* The number of another call in the other kind of program. */
	ck_assert_int_eq(read_call(ABI_NATIVE, ABI_NARROW_FLOCK, 7, LOCK_EX, 0).kind, LOCKCALL_OTHER);
	ck_assert_int_eq(read_call(ABI_NARROW, SYS_flock, 7, LOCK_EX, 0).kind, LOCKCALL_OTHER);
}

static const struct {
	unsigned arch, number;
	int command;
	enum lockcall_kind kind;
	bool waits;
	enum wire_owner owner;
	enum lockcall_form form;
} commands[] = {
	{ABI_NATIVE, SYS_fcntl, 5, LOCKCALL_TEST, false, WIRE_OWNER_PROCESS, LOCKCALL_WIDE},
	{ABI_NATIVE, SYS_fcntl, 6, LOCKCALL_TAKE, false, WIRE_OWNER_PROCESS, LOCKCALL_WIDE},
	{ABI_NATIVE, SYS_fcntl, 7, LOCKCALL_TAKE, true, WIRE_OWNER_PROCESS, LOCKCALL_WIDE},
	{ABI_NATIVE, SYS_fcntl, 36, LOCKCALL_TEST, false, WIRE_OWNER_DESCRIPTION, LOCKCALL_WIDE},
	{ABI_NATIVE, SYS_fcntl, 37, LOCKCALL_TAKE, false, WIRE_OWNER_DESCRIPTION, LOCKCALL_WIDE},
	{ABI_NATIVE, SYS_fcntl, 38, LOCKCALL_TAKE, true, WIRE_OWNER_DESCRIPTION, LOCKCALL_WIDE},
	{ABI_NARROW, ABI_NARROW_FCNTL, 5, LOCKCALL_TEST, false, WIRE_OWNER_PROCESS, LOCKCALL_SMALL},
	{ABI_NARROW, ABI_NARROW_FCNTL, 7, LOCKCALL_TAKE, true, WIRE_OWNER_PROCESS, LOCKCALL_SMALL},
	{ABI_NARROW, ABI_NARROW_FCNTL64, 6, LOCKCALL_TAKE, false, WIRE_OWNER_PROCESS, LOCKCALL_SMALL},
	{ABI_NARROW, ABI_NARROW_FCNTL64, 12, LOCKCALL_TEST, false, WIRE_OWNER_PROCESS, LOCKCALL_NARROW},
	{ABI_NARROW, ABI_NARROW_FCNTL64, 14, LOCKCALL_TAKE, true, WIRE_OWNER_PROCESS, LOCKCALL_NARROW},
	{ABI_NARROW, ABI_NARROW_FCNTL64, 37, LOCKCALL_TAKE, false, WIRE_OWNER_DESCRIPTION, LOCKCALL_NARROW},
};

TEST_EACH(commands_are_read, ROWS(commands))
{
	const struct lockcall call =
		read_call(commands[_i].arch, commands[_i].number, 3, (unsigned)commands[_i].command, 0x500001000);

	ck_assert_int_eq(call.kind, commands[_i].kind);
	ck_assert_int_eq(call.waits, commands[_i].waits);
	ck_assert_int_eq(call.owner, commands[_i].owner);
	ck_assert_int_eq(call.form, commands[_i].form);
	/* The upper half of a 32-bit program's registers means nothing. */
	ck_assert_uint_eq(call.at, commands[_i].arch == ABI_NARROW ? 0x1000 : 0x500001000);
}

TEST(hello)
{
	const uint64_t none = (uint32_t)-1;

	ck_assert_int_eq(read_call(ABI_NATIVE, SYS_fcntl, none, 36, LOCKCALL_HELLO_ADDRESS).kind, LOCKCALL_HELLO);
	ck_assert_int_eq(read_call(ABI_NATIVE, SYS_fcntl, none, 36, LOCKCALL_HELLO_ADDRESS + 1).kind, LOCKCALL_TEST);
	ck_assert_int_eq(read_call(ABI_NATIVE, SYS_fcntl, 3, 36, LOCKCALL_HELLO_ADDRESS).kind, LOCKCALL_TEST);
	ck_assert_int_eq(read_call(ABI_NATIVE, SYS_fcntl, none, 5, LOCKCALL_HELLO_ADDRESS).kind, LOCKCALL_TEST);
}

/* Where the kernel has the fields: type, whence, start, length, pid; and how large the numbers are. */
static const struct {
	enum lockcall_form form;
	size_t size, start, len, pid, number;
} layouts[] = {
	{LOCKCALL_WIDE, 32, 8, 16, 24, 8},
	{LOCKCALL_SMALL, 16, 4, 8, 12, 4},
#if ABI_FLOCK64_PACKED
	{LOCKCALL_NARROW, 24, 4, 12, 20, 8},
#else
	{LOCKCALL_NARROW, 32, 8, 16, 24, 8},
#endif
};

TEST_EACH(forms, ROWS(layouts))
{
	const struct flock64 lock = {
		.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -5, .l_len = 77, .l_pid = 4711};
	unsigned char bytes[LOCKCALL_BYTES], again[LOCKCALL_BYTES];
	const int16_t type = F_WRLCK, whence = SEEK_END;
	const int64_t start = -5, len = 77;
	const int32_t pid = 4711;
	struct flock64 found;

	ck_assert_uint_eq(lockcall_form_bytes(layouts[_i].form), layouts[_i].size);
	memset(bytes, 0x5a, sizeof(bytes));
	memcpy(bytes, &type, 2);
	memcpy(bytes + 2, &whence, 2);
	memcpy(bytes + layouts[_i].start, &start, layouts[_i].number);
	memcpy(bytes + layouts[_i].len, &len, layouts[_i].number);
	memcpy(bytes + layouts[_i].pid, &pid, 4);
	found = lockcall_parse(layouts[_i].form, bytes);
	ck_assert_int_eq(found.l_type, lock.l_type);
	ck_assert_int_eq(found.l_whence, lock.l_whence);
	ck_assert_int_eq(found.l_start, lock.l_start);
	ck_assert_int_eq(found.l_len, lock.l_len);
	ck_assert_int_eq(found.l_pid, lock.l_pid);
	/* What lies between the fields stays. */
	memset(again, 0x5a, sizeof(again));
	ck_assert_int_eq(lockcall_print(layouts[_i].form, &lock, again), 0);
	ck_assert_mem_eq(again, bytes, sizeof(bytes));
}

TEST(what_does_not_fit)
{
	struct flock64 lock = {.l_start = 10, .l_len = INT64_C(1) << 40};
	unsigned char bytes[LOCKCALL_BYTES] = {0};

	ck_assert_int_eq(lockcall_print(LOCKCALL_SMALL, &lock, bytes), 0);
	ck_assert_int_eq(lockcall_parse(LOCKCALL_SMALL, bytes).l_len, INT32_MAX);
	lock.l_start = INT64_C(1) << 31;
	ck_assert_int_eq(lockcall_print(LOCKCALL_SMALL, &lock, bytes), -EOVERFLOW);
	ck_assert_int_eq(lockcall_print(LOCKCALL_NARROW, &lock, bytes), 0);
	ck_assert_int_eq(lockcall_parse(LOCKCALL_NARROW, bytes).l_start, lock.l_start);
}

/* All tests, without a key and with one. */
static void without_key(void) { key = 0; }
VARIANT(without_key)

static void with_key(void) { key = KEY; }
VARIANT(with_key)
