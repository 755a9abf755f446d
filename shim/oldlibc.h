/*
 * Functions that newer versions of glibc moved into libc, as weak symbols with the versions that glibc 2.28 knows. With
 * a glibc before 2.34, dlsym() and dladdr() exist if the program or one of its libraries uses libdl, and the others if
 * it uses libpthread; without libpthread there are no threads. Callers must compare such a function with NULL first.
 * With 2.34 or newer none is NULL.
 *
 * A compatibility version is the same code as the newest one (nm -D libc.so.6 shows one address). tests/interpose
 * compares the versions that the shim needs with the oldest glibc that it must work with.
 */
#ifndef DFLOCK_SHIM_OLDLIBC_H
#define DFLOCK_SHIM_OLDLIBC_H

#include <dlfcn.h>
#include <pthread.h>

#if defined(__x86_64__) && !defined(__ILP32__)
#define OLDLIBC_FIRST "GLIBC_2.2.5"
#define OLDLIBC_NPTL  "GLIBC_2.3.3"
#elif defined(__aarch64__)
#define OLDLIBC_FIRST "GLIBC_2.17"
#define OLDLIBC_NPTL  "GLIBC_2.17"
#endif

#ifdef OLDLIBC_FIRST
#define OLDLIBC(name, version) __asm__(".symver " #name ", " #name "@" version)
#else
#define OLDLIBC(name, version) _Static_assert(1, "the newest version is taken")
#endif

#pragma weak dlsym
#pragma weak dladdr
#pragma weak pthread_testcancel
#pragma weak __pthread_register_cancel
#pragma weak __pthread_unregister_cancel
#pragma weak __pthread_unwind_next

#endif
