/*
 * How a thread knows that it has left a conversation. The stack grows downwards, and a conversation is a variable
 * (struct ask) of a function that either still runs or was left by a jump. If the function still runs, a lock call that
 * is made now comes from a signal handler that interrupted it, and has its frames below that variable. So, for the
 * frame of this call:
 *
 * 1. It is at or above the variable: the conversation was left.
 * 2. It is below, and the variable does not have its cookie: frames of later calls have overwritten it, so the
 *    conversation was left.
 * 3. It is below, and the cookie is there: the conversation goes on, or was left with its cookie in a gap between later
 *    frames. It stays; the next call from another depth decides.
 *
 * This holds on one stack. A call on an alternate signal stack can conclude nothing about conversations on another
 * stack: they stay. But a conversation that was begun on an alternate stack was left if the thread is not on that stack
 * now.
 *
 * The thread's number and the place of its errno tell whether it is the same thread; a child of fork() has another number. A thread that has
 * ended (a handler may call pthread_exit()) is found out by a call of any other thread of its process. A number that was used
 * again, or a descriptor that the program closed and that now is something else, shows in ask_identity(): the shim never closes
 * a descriptor of the program. (Between that look and close(), another thread of the program may close what is not its own, and
 * open something else.) A caller that waits until there is a keeper has a timer instead of a socket (await.c).
 *
 * A slot's `cookie` is FREE; or BUSY, while a thread writes the slot or ends its conversation; or a value that is never
 * used again. A reader of a slot reads the cookie first. If compare and exchange then still finds this cookie, what was
 * read belongs to it, and no other thread ends that conversation.
 */
#include "shim/ask.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>

#include "wire/sys.h"

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1u << 31)
#endif

enum { FREE, BUSY };

static struct slot {
	uint64_t cookie;
	const struct ask *ask;
	uint64_t identity;
	int sock;
	pid_t process, thread;
	const int *thread_errno;
	bool alternate; /* the conversation is on an alternate signal stack */
	bool disarms;   /* SS_AUTODISARM: handlers do not see that they run on an alternate stack */
} abandoned_slots[ABANDONED_NOTED];

uint32_t abandoned_noted;
static uint32_t abandoned_cookies;

static unsigned int alternate_stack(void)
{
	stack_t now = {.ss_flags = 0};

	sys(sigaltstack, NULL, &now);
	return (unsigned int)now.ss_flags;
}

static bool abandoned_exchange(struct slot *slot, uint64_t from, uint64_t to)
{
	return __atomic_compare_exchange_n(&slot->cookie, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* A value that is on no stack by chance; its low bits say which slot. */
static uint64_t abandoned_cookie(unsigned int slot)
{
	uint64_t cookie = (__atomic_add_fetch(&abandoned_cookies, 1, __ATOMIC_RELAXED) | UINT64_C(1) << 32) *
			  0x9e3779b97f4a7c15ull;

	return (cookie | 1) * ABANDONED_NOTED + slot;
}

void abandoned_note(struct ask *ask)
{
	unsigned int flags = alternate_stack();

	ask->identity = ask_identity(ask->sock, 0);
	if (!ask->identity)
		return;
	for (unsigned int i = 0; i < ABANDONED_NOTED; i++) {
		if (!abandoned_exchange(&abandoned_slots[i], FREE, BUSY))
			continue;
		ask->cookie = abandoned_cookie(i);
		abandoned_slots[i].ask = ask;
		abandoned_slots[i].identity = ask->identity;
		abandoned_slots[i].sock = ask->sock;
		abandoned_slots[i].process = (pid_t)sys_raw(SYS_getpid);
		abandoned_slots[i].thread = (pid_t)sys_raw(SYS_gettid);
		abandoned_slots[i].thread_errno = &errno;
		abandoned_slots[i].alternate = flags & SS_ONSTACK;
		abandoned_slots[i].disarms = flags & SS_AUTODISARM;
		__atomic_add_fetch(&abandoned_noted, 1, __ATOMIC_RELAXED);
		__atomic_store_n(&abandoned_slots[i].cookie, ask->cookie, __ATOMIC_RELEASE);
		return;
	}
}

static void abandoned_release(struct slot *slot)
{
	__atomic_sub_fetch(&abandoned_noted, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->cookie, FREE, __ATOMIC_RELEASE);
}

void abandoned_forget(struct ask *ask)
{
	struct slot *slot = &abandoned_slots[ask->cookie % ABANDONED_NOTED];

	if (ask->cookie && abandoned_exchange(slot, ask->cookie, BUSY))
		abandoned_release(slot);
	ask->cookie = 0;
}

/* `frame`: of the call that runs now; `flags`: of the alternate stack, as sigaltstack() shows them now. */
static bool abandoned_was_left(const struct slot *slot, uint64_t cookie, const void *frame, unsigned int flags)
{
	if (slot->disarms && (flags & SS_DISABLE))
		return false;
	if (flags & SS_ONSTACK && !slot->alternate)
		return false;
	if (slot->alternate && !(flags & SS_ONSTACK))
		return true;
	return (uintptr_t)frame >= (uintptr_t)slot->ask ||
	       __atomic_load_n(&slot->ask->cookie, __ATOMIC_RELAXED) != cookie;
}

/* A child of fork() has copies of its parent's conversations, which go on. */
static bool abandoned_thread_ended(const struct slot *slot, pid_t me)
{
	const pid_t process = (pid_t)sys_raw(SYS_getpid);

	if (slot->process != process)
		return false;
	if (slot->thread == me) /* the number may be used again, and the stack be gone */
		return slot->thread_errno != &errno;
	return sys_raw(SYS_tgkill, process, slot->thread, 0) == -ESRCH;
}

void abandoned_end_slow(void)
{
	const int saved = errno;
	const pid_t me = (pid_t)sys_raw(SYS_gettid);
	const unsigned int flags = alternate_stack();

	for (unsigned int i = 0; i < ABANDONED_NOTED; i++) {
		uint64_t cookie = __atomic_load_n(&abandoned_slots[i].cookie, __ATOMIC_ACQUIRE);
		struct slot seen = abandoned_slots[i];

		if (cookie == FREE || cookie == BUSY)
			continue;
		if (!abandoned_thread_ended(&seen, me) &&
		    (seen.thread != me || !abandoned_was_left(&seen, cookie, __builtin_frame_address(0), flags)))
			continue;
		if (!abandoned_exchange(&abandoned_slots[i], cookie, BUSY))
			continue;
		ask_hang_up(seen.sock, seen.identity);
		abandoned_release(&abandoned_slots[i]);
	}
	errno = saved;
}
