/*
 * What the supervisor reads of a thread T whose call it has, and the one thing that it writes there.
 *
 * A thread can be killed at any time, and its number given to another one. The pidfd and the descriptor of T's memory
 * cannot pass to another thread: it is checked once, after they were opened, that the call is still there. What
 * is read by T's number is checked afterwards by whoever uses it, with thread_is_in_call().
 *
 * Results are -errno: -ESRCH: T was killed, or its call has ended; nothing is to be answered.
 */
#ifndef DFLOCK_NET_THREAD_H
#define DFLOCK_NET_THREAD_H

#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/msg.h"

struct thread {
	int listener;                     /* not owned */
	uint64_t id;                      /* of the call */
	pid_t tid;                        /* as this process sees it */
	int pidfd;                        /* before Linux 6.9 of T's process */
	pid_t process;                    /* T's, if pidfd is this one's; else 0 */
	int memory;                       /* -1: not opened so far */
	char command[WIRE_COMMAND_BYTES]; /* thread_command() */
};

/* 0 or -errno. thread_close() follows in any case. */
int thread_open(struct thread *t, int listener, const struct seccomp_notif *notif);
void thread_close(struct thread *t);

/* Its name, for people; valid as long as *t. "" or another thread's if T has ended. */
const char *thread_command(struct thread *t);

/* Has the call still no answer? */
bool thread_is_in_call(const struct thread *t);

/* A copy of T's descriptor `fd`, closed by exec. -EBADF: T has none of this number. -EXDEV: before Linux 6.9, T does not share
 * descriptors with the first thread of its process, perhaps since that one has ended. */
int thread_copy(const struct thread *t, int fd);

/* The same of descriptor 2; where thread_copy() gives -EXDEV, of its process's. */
int thread_copy_for_messages(const struct thread *t);

/* 0 or -errno; -EFAULT: there is no such memory. Both may wait if the memory is that of a file server. */
int thread_read(struct thread *t, uint64_t at, void *bytes, size_t size);
int thread_write(struct thread *t, uint64_t at, const void *bytes, size_t size);
/* May T itself read there? thread_read() cannot read all that the kernel reads for T: not what memfd_secret() or a device has mapped. 0; -EFAULT:
 * no; -errno: it cannot be found out. */
int thread_may_read(const struct thread *t, uint64_t at, size_t size);
/* The same of writing: thread_write() writes to memory that T may only read, too. */
int thread_may_write(const struct thread *t, uint64_t at, size_t size);

/* Has T another root directory or mount namespace than this process? A path is then not the same for both. True also if
 * this cannot be found out. */
bool thread_is_elsewhere(const struct thread *t);

/*
 * Has a signal, a stop, a freezer or a tracer woken T? A call that waits, and was received, sleeps as S, and from then on
 * as D, since WAIT_KILLABLE_RECV puts it to sleep again (docs/net.md, finding 5). So T will not go on before it is
 * answered, and -ERESTARTSYS is an answer that the kernel makes EINTR or another call of. 1, 0, or -errno.
 */
int thread_is_signalled(const struct thread *t);

#endif
