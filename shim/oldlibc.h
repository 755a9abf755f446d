/*
 * Functions that newer versions of glibc moved into libc, as weak symbols with the versions that glibc 2.28 knows. With
 * a glibc before 2.34, dlsym() and dladdr() exist if the program or one of its libraries uses libdl, and the others if
 * it uses libpthread; without libpthread there are no threads. Callers must compare such a function with NULL first.
 * With 2.34 or newer none is NULL.
 *
 * A compatibility version is the same code as the newest one (nm -D libc.so.6 shows one address). tests/interpose
 * compares the versions that the shim needs with the oldest glibc that it must work with.
 *
 * One library for programs of glibc and of musl: musl takes libc.so.6 for itself, and does not look at versions. A second library
 * could not be named beside this one in the LD_PRELOAD of a job that has programs of both: glibc writes a line for a library that it
 * cannot find, and ends the program if the library needs another one that is not there (musl's libc). So the shim uses only what
 * both have with the same arguments and structures; tests/interpose compares the names with a list.
 */
#ifndef DFLOCK_SHIM_OLDLIBC_H
#define DFLOCK_SHIM_OLDLIBC_H

#include <dlfcn.h>
#include <pthread.h>

#if defined(__x86_64__) && !defined(__ILP32__)
#define OLDLIBC_FIRST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define OLDLIBC_FIRST "GLIBC_2.17"
#endif

#ifdef OLDLIBC_FIRST
#define OLDLIBC(name, version) __asm__(".symver " #name ", " #name "@" version)
#else
#define OLDLIBC(name, version) _Static_assert(1, "the newest version is taken")
#endif

#pragma weak dlsym
#pragma weak dladdr
#pragma weak pthread_testcancel
#pragma weak dlerror
#pragma weak _pthread_cleanup_push
#pragma weak _pthread_cleanup_pop

/*
 * pthread_cleanup_push() as musl's header has it, and as glibc had it for LinuxThreads: `handler` runs when the thread is cancelled or
 * exits. The form of glibc's header needs functions that musl lacks. A cleanup is libc's own until it is popped: three pointers in musl
 * (struct __ptcb), and an int beside them in glibc (struct _pthread_cleanup_buffer). No cancellation point; after fork, too.
 */
struct oldlibc_cleanup {
	void *members[4];
};
void _pthread_cleanup_push(struct oldlibc_cleanup *cleanup, void (*handler)(void *arg), void *arg);
void _pthread_cleanup_pop(struct oldlibc_cleanup *cleanup, int execute);

#endif
