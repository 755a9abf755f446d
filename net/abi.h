/*
 * The system calls that take locks, by the numbers of each kind of program that this machine runs: those of its own width, and
 * 32-bit ones (i386, AArch32). x32 programs have the native numbers with a bit more.
 *
 * The commands of fcntl() are written as numbers: libc's names mean what the program that includes them would use.
 */
#ifndef DFLOCK_NET_ABI_H
#define DFLOCK_NET_ABI_H

#include <linux/audit.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define ABI_NATIVE         AUDIT_ARCH_X86_64
#define ABI_NARROW         AUDIT_ARCH_I386
#define ABI_X32_BIT        0x40000000u
#define ABI_FLOCK64_PACKED 1 /* a 32-bit program's struct flock64 has no padding before its 64-bit fields */
#elif defined(__aarch64__)
#define ABI_NATIVE         AUDIT_ARCH_AARCH64
#define ABI_NARROW         AUDIT_ARCH_ARM
#define ABI_X32_BIT        0u
#define ABI_FLOCK64_PACKED 0
#else
#error "dflock-net is for x86-64 and arm64"
#endif

/* The same for i386 and AArch32. */
#define ABI_NARROW_FLOCK   143
#define ABI_NARROW_FCNTL   55
#define ABI_NARROW_FCNTL64 221

enum {
	ABI_GETLK = 5,
	ABI_SETLK = 6,
	ABI_SETLKW = 7,
	/* Only fcntl64() of 32-bit programs knows these three. */
	ABI_GETLK64 = 12,
	ABI_SETLK64 = 13,
	ABI_SETLKW64 = 14,
	/* fcntl() of 32-bit programs does not know these three. */
	ABI_OFD_GETLK = 36,
	ABI_OFD_SETLK = 37,
	ABI_OFD_SETLKW = 38,
};

#endif
