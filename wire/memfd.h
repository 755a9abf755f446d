/* A file in memory. */
#ifndef DFLOCK_WIRE_MEMFD_H
#define DFLOCK_WIRE_MEMFD_H

#include <sys/mman.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* flags: MFD_CLOEXEC or 0. It may be sealed. -1 with errno. */
static inline int memfd_make(const char *name, unsigned flags)
{
	/* A machine may insist on it (vm.memfd_noexec); Linux before 6.3 does not know it. */
	int fd = memfd_create(name, flags | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	return fd < 0 ? memfd_create(name, flags | MFD_ALLOW_SEALING) : fd;
}

#endif
