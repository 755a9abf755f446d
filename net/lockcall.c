/* See lockcall.h. The layouts are those of Linux' include/uapi/asm-generic/fcntl.h and include/linux/compat.h. */
#include "net/lockcall.h"

#include <errno.h>
#include <string.h>

#include "net/abi.h"

struct flock_small {
	int16_t type, whence;
	int32_t start, len, pid;
};

/* On arm64, the 64-bit fields of an AArch32 program are aligned. */
struct flock_narrow {
	int16_t type, whence;
	int64_t start, len;
	int32_t pid;
}
#if ABI_FLOCK64_PACKED
__attribute__((packed))
#endif
;

_Static_assert(sizeof(struct flock64) == LOCKCALL_BYTES, "the wide form is this program's own");
_Static_assert(sizeof(struct flock_small) == 16, "as the kernel has it");
_Static_assert(sizeof(struct flock_narrow) == (ABI_FLOCK64_PACKED ? 24 : 32), "as the kernel has it");

static void lockcall_read_fcntl(int command, struct lockcall *out)
{
	const bool ofd = command >= ABI_OFD_GETLK;

	switch (command) {
	case ABI_GETLK:
	case ABI_GETLK64:
	case ABI_OFD_GETLK:
		out->kind = LOCKCALL_TEST;
		break;
	case ABI_SETLKW:
	case ABI_SETLKW64:
	case ABI_OFD_SETLKW:
		out->waits = true;
		out->kind = LOCKCALL_TAKE;
		break;
	case ABI_SETLK:
	case ABI_SETLK64:
	case ABI_OFD_SETLK:
		out->kind = LOCKCALL_TAKE;
		break;
	default:
		return;
	}
	out->owner = ofd ? WIRE_OWNER_DESCRIPTION : WIRE_OWNER_PROCESS;
	if (command == ABI_OFD_GETLK && out->fd == -1 && out->at == LOCKCALL_HELLO_ADDRESS)
		out->kind = LOCKCALL_HELLO;
}

void lockcall_read(const struct seccomp_data *data, struct lockcall *out)
{
	const bool narrow = data->arch == ABI_NARROW;
	const unsigned number = (unsigned)data->nr;
	const int command = (int)data->args[1];

	*out = (struct lockcall){.fd = (int)data->args[0], .at = narrow ? (uint32_t)data->args[2] : data->args[2]};
	if (number == (narrow ? ABI_NARROW_FLOCK : SYS_flock)) {
		out->kind = LOCKCALL_FLOCK;
		out->op = command;
		return;
	}
	if (narrow)
		out->form = number == ABI_NARROW_FCNTL || command <= ABI_SETLKW ? LOCKCALL_SMALL : LOCKCALL_NARROW;
	if (number == (narrow ? ABI_NARROW_FCNTL64 : SYS_fcntl) || (narrow && number == ABI_NARROW_FCNTL))
		lockcall_read_fcntl(command, out);
}

size_t lockcall_form_bytes(enum lockcall_form form)
{
	static const size_t bytes[] = {
		[LOCKCALL_WIDE] = sizeof(struct flock64),
		[LOCKCALL_SMALL] = sizeof(struct flock_small),
		[LOCKCALL_NARROW] = sizeof(struct flock_narrow),
	};

	return bytes[form];
}

struct flock64 lockcall_parse(enum lockcall_form form, const unsigned char bytes[LOCKCALL_BYTES])
{
	struct flock64 wide = {.l_type = 0};
	struct flock_small small;
	struct flock_narrow narrow;

	switch (form) {
	case LOCKCALL_WIDE:
		memcpy(&wide, bytes, sizeof(wide));
		return wide;
	case LOCKCALL_SMALL:
		memcpy(&small, bytes, sizeof(small));
		return (struct flock64){.l_type = small.type,
					.l_whence = small.whence,
					.l_start = small.start,
					.l_len = small.len,
					.l_pid = small.pid};
	case LOCKCALL_NARROW:
		memcpy(&narrow, bytes, sizeof(narrow));
		return (struct flock64){.l_type = narrow.type,
					.l_whence = narrow.whence,
					.l_start = narrow.start,
					.l_len = narrow.len,
					.l_pid = narrow.pid};
	}
	return wide;
}

/* A length that does not fit is cut, as by the kernel's fixup_compat_flock(). */
static int lockcall_print_small(const struct flock64 *lock, unsigned char *bytes)
{
	const struct flock_small small = {
		.type = lock->l_type,
		.whence = lock->l_whence,
		.start = (int32_t)lock->l_start,
		.len = lock->l_len > INT32_MAX ? INT32_MAX : (int32_t)lock->l_len,
		.pid = lock->l_pid,
	};

	if (lock->l_start > INT32_MAX)
		return -EOVERFLOW;
	memcpy(bytes, &small, sizeof(small));
	return 0;
}

int lockcall_print(enum lockcall_form form, const struct flock64 *lock, unsigned char bytes[LOCKCALL_BYTES])
{
	struct flock64 wide;
	struct flock_narrow narrow;

	switch (form) {
	case LOCKCALL_SMALL:
		return lockcall_print_small(lock, bytes);
	case LOCKCALL_NARROW:
		memcpy(&narrow, bytes, sizeof(narrow));
		narrow.type = lock->l_type;
		narrow.whence = lock->l_whence;
		narrow.start = lock->l_start;
		narrow.len = lock->l_len;
		narrow.pid = lock->l_pid;
		memcpy(bytes, &narrow, sizeof(narrow));
		return 0;
	default:
		memcpy(&wide, bytes, sizeof(wide));
		wide.l_type = lock->l_type;
		wide.l_whence = lock->l_whence;
		wide.l_start = lock->l_start;
		wide.l_len = lock->l_len;
		wide.l_pid = lock->l_pid;
		memcpy(bytes, &wide, sizeof(wide));
		return 0;
	}
}
