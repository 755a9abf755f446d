/* See filter.h. */
#include "net/filter.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/prctl.h>

#include "net/abi.h"
#include "wire/sys.h"

/*
 * NEW_LISTENER        the calls go to a descriptor
 * WAIT_KILLABLE_RECV  once received, a call hears no signal that has a handler, so that no answer to it can get lost. Linux 5.19
 * SPEC_ALLOW          does not slow the job down by measures against speculation, which this filter needs none of
 */
#define FLAGS                                                                                                          \
	(SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV | SECCOMP_FILTER_FLAG_SPEC_ALLOW)

static void filter_add(struct filter *f, struct sock_filter instruction)
{
	f->code[f->length++] = instruction;
}

/* The low half of an argument, which is all that the kernel looks at of a descriptor, an operation or a command. Both machines
 * are little-endian. */
static void filter_load(struct filter *f, size_t offset)
{
	filter_add(f, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offset));
}

static void filter_return(struct filter *f, unsigned what)
{
	filter_add(f, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what));
}

/* If what is loaded equals `value`, goes on after `yes` instructions, else after `no`. */
static void filter_if(struct filter *f, unsigned value, unsigned char yes, unsigned char no)
{
	filter_add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no));
}

/* The call's number is loaded. If it is that of flock(): LOCK_UN passes, the rest is handed over. */
static void filter_flock(struct filter *f, unsigned number)
{
	filter_if(f, number, 0, 5);
	filter_load(f, offsetof(struct seccomp_data, args[1]));
	filter_add(f, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~(unsigned)LOCK_NB));
	filter_if(f, LOCK_UN, 0, 1);
	filter_return(f, SECCOMP_RET_ALLOW);
	filter_return(f, SECCOMP_RET_USER_NOTIF);
}

/* The call's number is loaded. If it is that of fcntl(): these commands are handed over, the rest passes. */
static void filter_fcntl(struct filter *f, unsigned number, const unsigned char *commands, unsigned char count)
{
	filter_if(f, number, 0, (unsigned char)(count + 3));
	filter_load(f, offsetof(struct seccomp_data, args[1]));
	for (unsigned char i = 0; i < count; i++)
		filter_if(f, commands[i], (unsigned char)(count - i), 0);
	filter_return(f, SECCOMP_RET_ALLOW);
	filter_return(f, SECCOMP_RET_USER_NOTIF);
}

/* The two halves of the sixth argument are those of key ^ fd ^ command, the latter two without a sign. 32-bit programs have no key. */
static void filter_key(struct filter *f, uint64_t key)
{
	const struct sock_filter with_last = BPF_STMT(BPF_ALU | BPF_XOR | BPF_X, 0),
				 keep = BPF_STMT(BPF_MISC | BPF_TAX, 0);
	unsigned short skip;

	filter_if(f, SYS_flock, 1, 0);
	skip = f->length;
	filter_if(f, SYS_fcntl, 0, 0);
	filter_load(f, offsetof(struct seccomp_data, args[5]));
	filter_add(f, keep);
	filter_load(f, offsetof(struct seccomp_data, args[0]));
	filter_add(f, with_last);
	filter_add(f, keep);
	filter_load(f, offsetof(struct seccomp_data, args[1]));
	filter_add(f, with_last);
	filter_if(f, (unsigned)key, 0, 3);
	filter_load(f, offsetof(struct seccomp_data, args[5]) + sizeof(unsigned));
	filter_if(f, (unsigned)(key >> 32), 0, 1);
	filter_return(f, SECCOMP_RET_ALLOW);
	f->code[skip].jf = (unsigned char)(f->length - skip - 1);
}

/* As by a kernel without x32. The number -1 has the bit, too: a tracer has taken that call away. */
static void filter_x32(struct filter *f)
{
	filter_load(f, offsetof(struct seccomp_data, nr));
	filter_add(f, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ABI_X32_BIT * 3));
	filter_if(f, ABI_X32_BIT, 0, 1);
	filter_return(f, SECCOMP_RET_ERRNO | ENOSYS);
}

static void filter_native(struct filter *f, uint64_t key)
{
	static const unsigned char commands[] = {ABI_GETLK,     ABI_SETLK,     ABI_SETLKW,
						 ABI_OFD_GETLK, ABI_OFD_SETLK, ABI_OFD_SETLKW};

	if (ABI_X32_BIT)
		filter_x32(f);
	filter_load(f, offsetof(struct seccomp_data, nr));
	if (key) {
		filter_key(f, key);
		filter_load(f, offsetof(struct seccomp_data, nr));
	}
	filter_flock(f, SYS_flock);
	filter_fcntl(f, SYS_fcntl, commands, sizeof(commands));
	filter_return(f, SECCOMP_RET_ALLOW);
}

static void filter_narrow(struct filter *f)
{
	static const unsigned char commands[] = {ABI_GETLK,    ABI_SETLK,     ABI_SETLKW,    ABI_GETLK64,   ABI_SETLK64,
						 ABI_SETLKW64, ABI_OFD_GETLK, ABI_OFD_SETLK, ABI_OFD_SETLKW};

	filter_load(f, offsetof(struct seccomp_data, nr));
	filter_flock(f, ABI_NARROW_FLOCK);
	filter_fcntl(f, ABI_NARROW_FCNTL, commands, 3);
	filter_fcntl(f, ABI_NARROW_FCNTL64, commands, sizeof(commands));
	filter_return(f, SECCOMP_RET_ALLOW);
}

void filter_build(struct filter *filter, uint64_t key)
{
	unsigned short jump;

	filter->length = 0;
	filter_load(filter, offsetof(struct seccomp_data, arch));
	jump = filter->length;
	filter_if(filter, ABI_NATIVE, 0, 0);
	filter_native(filter, key);
	filter->code[jump].jf = (unsigned char)(filter->length - jump - 1);
	filter_if(filter, ABI_NARROW, 1, 0);
	filter_return(filter, SECCOMP_RET_ALLOW);
	filter_narrow(filter);
}

int filter_install(uint64_t key)
{
	struct filter filter;
	struct sock_fprog program = {.filter = filter.code};
	long ret;

	filter_build(&filter, key);
	program.len = filter.length;
	ret = sys_raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, FLAGS, &program);
	if (ret == -EACCES && sys_raw(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
		ret = sys_raw(SYS_seccomp, SECCOMP_SET_MODE_FILTER, FLAGS, &program);
	return (int)ret;
}
