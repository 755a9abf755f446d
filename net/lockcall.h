/*
 * A lock call that the filter handed over: what its arguments say, and the forms of struct flock in the program's memory.
 * Pure.
 */
#ifndef DFLOCK_NET_LOCKCALL_H
#define DFLOCK_NET_LOCKCALL_H

#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shim/real.h"
#include "wire/msg.h"

enum lockcall_kind {
	LOCKCALL_OTHER, /* none that concerns dflock; the filter lets these pass */
	LOCKCALL_FLOCK,
	LOCKCALL_TAKE,  /* a record lock; or it unlocks, which only struct flock says */
	LOCKCALL_TEST,  /* F_GETLK and its kin */
	LOCKCALL_HELLO, /* dflock-net asks whether it is under a net already */
};

/*
 * fcntl(-1, F_OFD_GETLK, LOCKCALL_HELLO_ADDRESS, netted_ground()) gives 0 under a net that goes by the same configuration, EEXIST under
 * another net, and EBADF elsewhere, whatever listener there is.
 */
#define LOCKCALL_HELLO_ADDRESS NETTED_HELLO_ADDRESS

enum lockcall_form {
	LOCKCALL_WIDE,   /* struct flock of a program of this machine's own width */
	LOCKCALL_SMALL,  /* struct flock of a 32-bit program */
	LOCKCALL_NARROW, /* struct flock64 of a 32-bit program */
};

/* No form is larger. */
#define LOCKCALL_BYTES 32

struct lockcall {
	enum lockcall_kind kind;
	int fd; /* negative: the kernel says EBADF */
	int op; /* of flock() */
	/* Of record locks: */
	bool waits;
	enum wire_owner owner;
	uint64_t at; /* where struct flock is in the program's memory */
	enum lockcall_form form;
};

void lockcall_read(const struct seccomp_data *data, struct lockcall *out);

size_t lockcall_form_bytes(enum lockcall_form form);
struct flock64 lockcall_parse(enum lockcall_form form, const unsigned char bytes[LOCKCALL_BYTES]);

/* Puts *lock into the form, as the kernel does for F_GETLK: padding stays as it was. 0; -EOVERFLOW: the lock begins where
 * the form cannot say. */
int lockcall_print(enum lockcall_form form, const struct flock64 *lock, unsigned char bytes[LOCKCALL_BYTES]);

#endif
