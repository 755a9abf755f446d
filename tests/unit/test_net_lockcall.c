/* What a caught call says, and struct flock in the forms of each kind of program. */
#include <sys/file.h>

/* dflock-net is no part of the library that unit tests are linked with. */
#include "net/lockcall.c"
#include "tests/unit/suite.h"

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
