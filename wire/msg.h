/*
 * The messages between a program and its keeper, over one SOCK_SEQPACKET connection per lock call
 * (RUNTIME_DIR/keeper.sock).
 *
 * A question is one struct wire_request. WIRE_LOCK, WIRE_TEST and WIRE_HELD carry the caller's own descriptor as SCM_RIGHTS; no
 * other operation carries any. The keeper answers each question with struct wire_reply: any number of WIRE_WAITING, and
 * then exactly one other verdict. Then the next question may follow on the same connection (WIRE_BEFORE; or WIRE_LOCK
 * with WIRE_F_HAVE: "the pin has run out, I have the kernel lock, is the lease still there?"). Closing the connection
 * cancels a wait and ends a pin.
 *
 * What never changes in any version: the place of magic, version, size and op, and of verdict and reason in a reply; and
 * the numbers of WIRE_STOP, WIRE_REFUSED and WIRE_OK. So two versions can always tell each other that they differ, and
 * `dflock stop` of any version ends a keeper of any other.
 *
 * libc only, no allocation: included by the shim.
 */
#ifndef DFLOCK_WIRE_MSG_H
#define DFLOCK_WIRE_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_MAGIC         0x6b6c6664u /* "dflk" */
#define WIRE_VERSION       4
#define WIRE_REASON_BYTES  1024
#define WIRE_COMMAND_BYTES 16 /* the kernel's names of processes have 15 bytes */
#define WIRE_SOCKET_NAME   "keeper.sock"

/* Ranges are half open, [from, to); WIRE_EOF as `to` means "to the largest offset". */
#define WIRE_EOF INT64_MAX

enum wire_op {
	WIRE_LOCK = 1, /* may I take this lock? */
	WIRE_TEST,     /* is a lock of another host in the way? (F_GETLK, F_OFD_GETLK, F_TEST) WIRE_GRANTED: no.
			* WIRE_WOULD_BLOCK: yes, and mode, from, to, pid show it. WIRE_REFUSED, WIRE_NOT_PROTECTED */
	WIRE_STATUS,   /* WIRE_OK with a memfd that holds JSON (SCM_RIGHTS), or WIRE_REFUSED */
	WIRE_RELOAD,   /* read the configuration again. WIRE_OK or WIRE_REFUSED */
	WIRE_STOP,     /* give all leases back and end. WIRE_OK, or WIRE_REFUSED (a lock is held). Of any version */
	WIRE_INIT,     /* open a new store before its grace is over. WIRE_OK, or WIRE_REFUSED with what is known of an
			* earlier memory of it. The answer may take somewhat longer than a third of ttl_ms. With
			* WIRE_F_FORCE: at once, whatever is known */
	WIRE_PING,     /* WIRE_OK */
	WIRE_BEFORE,   /* record space: which locks did the caller have before the last WIRE_LOCK on this connection?
			* WIRE_OK: the first one that ends after `from` (mode, from, to); from == to: no more. A call that
			* fails puts these back */
	WIRE_FIT, /* may a job that starts now rely on its locks? WIRE_OK; WIRE_REFUSED; WIRE_WOULD_BLOCK with the reason:
			* not connected to the store so far, ask again */
	WIRE_HELD, /* which processes hold locks that are in the way of this one, on all hosts? With the caller's descriptor, as
		    * WIRE_LOCK. WIRE_OK with a line to show; WIRE_NOT_PROTECTED; WIRE_REFUSED. Takes two seconds at
		    * most */
	WIRE_WHO, /* the same about a whole lock: its name, or the absolute path of a file, follows the struct in the
		    * message, without a NUL. WIRE_OK with a memfd that holds JSON (SCM_RIGHTS), or WIRE_REFUSED */
	/* For `dflock break`; a text follows the struct in the message, without a NUL. WIRE_OK: done; WIRE_WOULD_BLOCK: there is
	 * no such thing (any more); WIRE_REFUSED with the reason: nothing was done, or not all. */
	WIRE_BREAK, /* take the lease with the fence number `from` away; `to`: the largest that the operator has seen.
			* Text: the lock name */
	WIRE_END_REST, /* end the rest of the name in `space`, if a lease with a fence number of at most `to` began it.
			* Text: the lock name */
	WIRE_GIVE_UP, /* release what a silent host has in the store. Text: the host. The answer may take ttl_ms and some
			* seconds. With WIRE_F_FORCE: at once */
	WIRE_LOG_LEVEL, /* which lines the log has: `dflock log-level`. Text: a level, "default", or "show". WIRE_OK with the level that is
			 * in force as reason */
	WIRE_METRICS, /* WIRE_OK with a memfd that holds JSON (SCM_RIGHTS), or WIRE_REFUSED: numbers, no names. At once */
	WIRE_OPS
};

#define WIRE_TEXT_BYTES 4096 /* of such a text, with a NUL */

enum wire_space { WIRE_FLOCK = 0, WIRE_RECORD = 1, WIRE_SPACES };
enum wire_mode { WIRE_SHARED = 0, WIRE_EXCLUSIVE = 1, WIRE_MODES };
enum wire_owner { WIRE_OWNER_DESCRIPTION = 0, WIRE_OWNER_PROCESS = 1, WIRE_OWNERS };

#define WIRE_F_NONBLOCK 0x01u /* the caller will not wait (LOCK_NB, F_SETLK) */
#define WIRE_F_HAVE     0x02u /* the caller holds the kernel lock it asks about */
#define WIRE_F_ALL      0x03u /* the flags of lock calls */
/* WIRE_INIT: whatever is known. WIRE_GIVE_UP: however long it was silent. WIRE_RELOAD: also if a lock is held under a name that goes. */
#define WIRE_F_FORCE 0x80u
/* WIRE_STATUS: without what the stores have, which costs them time for each lock name: what somebody may ask for each minute. */
#define WIRE_F_OWN 0x40u

enum wire_verdict {
	WIRE_GRANTED = 1, /* the lease stands at least until until_ns of the caller's clock */
	WIRE_WAITING, /* not final: the caller waits for another host. With a reason: it waits for the store, and the
		       * reason is a line to show */
	WIRE_WOULD_BLOCK,   /* another host holds it, and the caller does not wait */
	WIRE_REFUSED,       /* ENOLCK; reason is the line to show */
	WIRE_DEADLOCK,      /* EDEADLK */
	WIRE_NOT_PROTECTED, /* the configuration does not name this file; reason: its path as the keeper sees it */
	WIRE_OK,            /* done; the answer to every operation but WIRE_LOCK and WIRE_TEST */
	WIRE_VERDICTS
};

/*
 * on_refused of a rule: what a lock call gets that cannot be served because store, keeper or lease are not there. BUSY: one
 * that does not wait gets EWOULDBLOCK, as if another process had the lock. WAIT: one that waits goes on waiting, if
 * waiting may mend it. All others are refused: ENOLCK.
 */
enum wire_on_refused { WIRE_ON_REFUSED_REFUSE = 0, WIRE_ON_REFUSED_BUSY, WIRE_ON_REFUSED_WAIT, WIRE_ON_REFUSED_VALUES };

/* One state of a configuration file; all zero: there is no file. Two states are the same if all words are equal. */
struct wire_config_id {
	uint64_t dev, ino, size;
	int64_t mtime_ns, ctime_ns;
};

static inline bool wire_config_is_none(const struct wire_config_id *id)
{
	return !(id->dev | id->ino | id->size | (uint64_t)id->mtime_ns | (uint64_t)id->ctime_ns);
}

/*
 * For this time after a change of the file, a side that does not know its new state goes by its path alone: the keeper
 * may not have looked at the file since. After that time the keeper has looked, and a state that it does not know is
 * that of another file (of another mount namespace) under the same path. `now_ns` is CLOCK_REALTIME; a clock that was
 * set back makes files young.
 */
#define WIRE_CONFIG_YOUNG_NS INT64_C(10000000000)
static inline bool wire_config_is_young(const struct wire_config_id *id, int64_t now_ns)
{
	return now_ns - id->ctime_ns < WIRE_CONFIG_YOUNG_NS;
}

struct wire_request {
	uint32_t magic;
	uint16_t version;
	uint16_t size; /* sizeof(struct wire_request) */
	uint8_t op, space, mode, flags;
	uint8_t owner;       /* enum wire_owner: whose locks conflict (record space) */
	uint8_t reserved[3]; /* zero */
	int64_t from, to;    /* record space: bytes. flock space: 0, WIRE_EOF. WIRE_BEFORE: see there, and WIRE_EOF */
	int64_t sent_ns;     /* the caller's CLOCK_BOOTTIME before it sent this */
	struct wire_config_id config;
	uint64_t config_path; /* leases_hash() of that file's path; 0: the path may lead the keeper to another file */
	/*
	 * WIRE_LOCK, WIRE_TEST: the question is asked on behalf of this thread, whose call has this number. A peer that is not root
	 * may ask for its own user's threads only. The numbers of a thread's calls grow (and may pass from the largest to 0). Both 0: the peer
	 * asks for itself. After WIRE_GRANTED to WIRE_LOCK the call counts as under way until the keeper has seen the thread
	 * out of it: the lease stays for so long, and nobody says when that is.
	 */
	int32_t thread;
	uint32_t reserved_too; /* zero */
	uint64_t call;
	/* For people: the caller's command name. Any bytes, and not always with a NUL; "": the keeper looks it up. */
	char command[WIRE_COMMAND_BYTES];
};

struct wire_reply {
	uint32_t magic;
	uint16_t version;
	uint16_t size;
	uint8_t verdict;
	uint8_t mode;       /* of the lock that `from` and `to` show */
	uint8_t on_refused; /* WIRE_REFUSED: of the file's rule; 0 also if the keeper did not get as far as that */
	uint8_t may_mend;   /* WIRE_REFUSED: 1: the same question may be served later, and nothing was wrong with it */
	int32_t pid;        /* WIRE_WOULD_BLOCK of WIRE_TEST: what F_GETLK shows as l_pid */
	char reason[WIRE_REASON_BYTES]; /* NUL-terminated, one line without newline: see the verdicts */
	int64_t until_ns; /* WIRE_GRANTED: sent_ns, plus the time for which the lease stands after the question was
			     received */
	uint64_t fence;
	/*
	 * WIRE_TEST: the range of the lock in the way. WIRE_BEFORE: that of the caller's own lock. WIRE_GRANTED in the
	 * record space: the first answer (with mode) that WIRE_BEFORE would give, so that hardly any call has to ask.
	 * If the caller had no lock there, both are the `to` of the question. Both 0: the keeper does not say; the
	 * caller asks WIRE_BEFORE, and then WIRE_LOCK again, since every question ends the pin.
	 */
	int64_t from, to;
};

_Static_assert(sizeof(struct wire_request) == 120, "the layout is the protocol");
_Static_assert(offsetof(struct wire_request, op) == 8 && WIRE_STOP == 5, "the same in all versions");
_Static_assert(offsetof(struct wire_reply, verdict) == 8 && offsetof(struct wire_reply, reason) == 16 &&
		       WIRE_REFUSED == 4 && WIRE_OK == 7,
	       "the same in all versions");
_Static_assert(sizeof(struct wire_reply) == 16 + WIRE_REASON_BYTES + 32, "the layout is the protocol");

/*
 * How a search for the holders of locks recognises a supervisor of the net (net/supervisor.h). While a call waits, the supervisor has
 * a copy of the thread's descriptor, and with it the lock that the description has already; but no program relies on the copy.
 *
 * Both must be so: the name of the process, and that this descriptor listens to a seccomp filter. So no other program looks like one
 * by accident.
 */
#define NETMARK_NAME     "dflock-net"
#define NETMARK_LISTENER 3
#define NETMARK_LINK     "anon_inode:seccomp notify" /* what /proc/PID/fd says of it */

#endif
