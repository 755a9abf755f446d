/*
 * Sees a thread out of the system call that it is in: afterwards the thread has left every lock call that it had begun before.
 *
 * What proves it: the thread has ended; it sleeps in a call that is no lock call (/proc/TID/syscall); or it was stopped for
 * ptrace, since a thread stops only on its way out of the kernel. So where /proc does not show it, the thread is seized, interrupted
 * and let go. A lock call that waits is begun anew by that, as after a stop; the program sees nothing of it. A thread that has left
 * the lock call and sleeps in epoll_wait() or a few other calls by the time it is interrupted may see EINTR from it, as after SIGSTOP.
 *
 * A process may keep a thread in the kernel for as long as it likes (a mount that does not answer), and PTRACE_SEIZE waits for a
 * thread that hangs in execve(). So each thread that is seen out has a thread here that does nothing else. One user has at
 * most SEEOUT_USER_MAX of them, and as many are left for root. Of all these, SEEOUT_GENTLY may have a part only: nobody waits for
 * it, and it may be wanted for all entries at once.
 */
#ifndef DFLOCK_KEEPER_SEEOUT_H
#define DFLOCK_KEEPER_SEEOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#define SEEOUT_MAX         64
#define SEEOUT_USER_MAX    16
#define SEEOUT_GENTLE_PART 4 /* one in so many */
#define SEEOUT_PATIENCE_MS 20

enum seeout_how {
	SEEOUT_GENTLY, /* without ptrace */
	/* ... if it sleeps in a lock call, where it may wait for a local holder, or falls asleep there in the next SEEOUT_PATIENCE_MS */
	SEEOUT_PATIENTLY,
	SEEOUT_AT_ONCE,
};
enum seeout_answer {
	SEEOUT_OUT,         /* it has left the call, or has ended */
	SEEOUT_CALLED_BACK, /* ditto, and it slept in a lock call, which begins anew */
	SEEOUT_REFUSED, /* another process traces it, or it may not be looked into: ask again. Or `how` forbids it, and /proc does not show it */
};
typedef void seeout_cb(void *arg, size_t tag, enum seeout_answer answer);

struct seeouts;

/* One per loop. cb is called in the loop, never from inside seeout_start(). NULL with errno set on failure. */
struct seeouts *seeouts_new(uv_loop_t *loop, seeout_cb *cb, void *arg);
/* Answers that are under way are dropped; threads that wait for the kernel go on until the process ends. */
void seeouts_free(struct seeouts *seeouts);

/* started: family_started() of the thread. uid: whose program it is. 0; -EAGAIN: there are enough of them, or no thread can be started:
 * ask again. */
int seeout_start(struct seeouts *seeouts, pid_t tid, uint64_t started, enum seeout_how how, uid_t uid, size_t tag);

/* What was started with this tag need not be seen any more: if it is not about to be interrupted already, it is left alone. The answer
 * (SEEOUT_REFUSED then) comes all the same. */
void seeout_cancel(struct seeouts *seeouts, size_t tag);

/* What the thread does; any thread, which may wait for ever in it. */
enum seeout_answer seeout_now(pid_t tid, uint64_t started, enum seeout_how how);

#endif
