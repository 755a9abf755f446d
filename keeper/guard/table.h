/*
 * The table of leases: one slot for each lease that this host has, asks for or gives back, in memory that the keeper, its
 * parent and the next keeper share. The keeper writes it; the next keeper takes the leases up from it; the parent
 * reads in it until when the leases are sure, and whose holders it has to stop then (promise 3 of docs/design.md).
 *
 * It is two files in the runtime directory, mode 0600, on a tmpfs: "leases" with the slots, which keeper and parent map,
 * and "leases.text" with token, name and path of each lease, which only keepers map (table_text.h). What is true of the host in one
 * of its stores is in the head, for the first store, and in "leases.stores" for the others: so a host with one store has a table that
 * each keeper of this version can read. Both grow by
 * posix_fallocate() only, so that no store ever meets a full file system. A table of another boot is void.
 *
 * The format's promise, from version 1 on: the table of any version is the file TABLE_NAME, and in it
 *   - the first TABLE_HEAD_PROMISED bytes are those of struct table_head, and head->sum is table_head_sum() (table_file.h);
 *   - slots begin at head_bytes and go on to the end of the file, each of slot_bytes bytes;
 *   - the first TABLE_SLOT_PROMISED bytes of a slot are those of struct table_slot. The lowest byte of its word is a state: on
 *     a slot that is TABLE_FREE, TABLE_ASKED or TABLE_RETURNED no process relies. Any other one is a lease;
 *   - on_lost has the values of enum on_lost in config.h, and any other means ON_LOST_FREEZE;
 *   - at signalled_at there are signalled_count of struct table_signalled.
 * What is behind these parts may change with any version. A keeper that knows more of another version may take more from it.
 * table_open.c ends the holders of their leases.
 *
 * table.c has the argument: which word is written when, and what a crash leaves behind.
 *
 * Loop only in the keeper; one thread in the parent. No function waits. A change of a slot is a few stores and no
 * system call, unless a file has to grow.
 */
#ifndef DFLOCK_KEEPER_TABLE_H
#define DFLOCK_KEEPER_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "config/config.h"
#include "keeper/clock.h"
#include "keeper/guard/underway.h"
#include "keeper/kernel/claims.h"
#include "wire/range.h"

#define TABLE_NAME        "leases"
#define TABLE_TEXT_NAME   "leases.text"
#define TABLE_STORES_NAME "leases.stores"
#define TABLE_NEW_NAME    "leases.new" /* until it is whole */
#define TABLE_BAD_NAME    "leases.bad"
#define TABLE_MAGIC       0x7365736165666c64ull
#define TABLE_VERSION     1 /* of the layout: a keeper takes up tables of its own version */
#define TABLE_SLOTS       65536
#define TABLE_SIGNALLED   4096
#define TABLE_CALLERS     1024
#define TABLE_NO_SLOT     UINT32_MAX
#define TABLE_MEMBERS     CONFIG_MAX_MEMBERS

enum table_state {
	TABLE_FREE,
	TABLE_ASKED,    /* perhaps the store was asked; no caller was told: the next keeper gives it back */
	TABLE_HELD,     /* a lease, sure until freeze_at_ns */
	TABLE_UNSURE,   /* a lease that the store has yet to confirm: processes that are frozen stay so */
	TABLE_RETURNED, /* goes back to the store: it never opens again, and no process relies on it */
	TABLE_LOST,     /* gone: the parent kills the holders and frees the slot */
	TABLE_ENDING,   /* the parent is killing the holders */
	TABLE_STATES
};

enum table_told {
	TABLE_TOLD_NOTHING,
	TABLE_TOLD_TO_END,      /* when no lease is in use */
	TABLE_TOLD_AT_ONCE,     /* now */
	TABLE_TOLD_TO_MAKE_WAY, /* now, and the next keeper is about to start: programs wait for it */
};

enum table_why {
	TABLE_WHY_UNKNOWN, /* the entry of a dead keeper cannot be read */
	TABLE_WHY_TAKEN,   /* it was not renewed, and the store gave it up */
	TABLE_WHY_FORGOTTEN,
	TABLE_WHY_BROKEN, /* an operator took it away; the store still has it */
	TABLE_WHY_KEY,    /* a Redis client may have its key (redis_key); ditto */
	TABLE_WHYS
};

/*
 * 128 bytes: all that the parent needs. The first TABLE_SLOT_PROMISED bytes are the same in every version of the table
 * (above).
 */
struct table_slot {
	uint64_t word; /* state, mode, generation: table_word() */
	uint64_t dev, ino;
	uint64_t kernel_dev, kernel_ino; /* what lock lines show (procfs.h); kernel_ino 0: the same */
	uint32_t on_lost;                /* enum on_lost: what the rule of its file says */
	uint32_t space; /* enum wire_space, or TABLE_ANY_SPACE; << TABLE_MEMBER_SHIFT: in which store */
	uint64_t fence; /* the store's number of the lease; 0: not granted, as far as is known */
	int64_t from, to;
	uint64_t incarnation; /* which `incarnation` of its store last confirmed it */
	/* The parent's: the generation of the lease for which it saw a lock, and no process that it could stop; and the
	 * generation for which the log says so. */
	uint64_t hidden, hidden_said;
	uint64_t sum;                /* of what does not change while it is a lease: table_file.h */
	uint32_t uid;                /* the user whose call asked for it */
	uint32_t why;                /* enum table_why, of a lost one */
	uint32_t text_at, text_room; /* in the text area, in units of TEXT_UNIT; stay with the slot when it is free */
	uint64_t broken_by;          /* of a broken one: only this user's processes are ended (uid + 1); 0: all */
};
#define TABLE_SLOT_PROMISED offsetof(struct table_slot, space)
#define TABLE_ANY_SPACE     0xffffu /* all locks on the file, in both */
#define TABLE_MEMBER_SHIFT  16

enum table_noted {
	TABLE_OURS,   /* the parent has stopped it by SIGSTOP, which outlives the parent */
	TABLE_KIN,    /* an ancestor of such a process: it may stop itself because of that (keeper/guard/signalled.c) */
	TABLE_BEFORE, /* in a process group with a TABLE_KIN, and was stopped before */
	TABLE_STOPPED_KIN, /* a TABLE_KIN that did stop itself: perhaps with its process group */
};

/* pid 0: none. */
struct table_signalled {
	int32_t pid;
	uint32_t noted;   /* enum table_noted */
	uint64_t started; /* family_started() */
};

/*
 * A process that is in a lock call without an answer. If it takes the kernel lock after the leases have ceased to be
 * sure, and did not inherit it, it relies on nothing. The keeper grants nothing from then on, so an entry stays true
 * until the leases are sure again; then it counts for none of them (table.c, forget_callers()). A process that had the
 * lock before is a holder, even if it is in another call.
 */
struct table_caller {
	int32_t pid;
	uint16_t space, member;
	uint64_t dev, ino;
};

/* The first TABLE_HEAD_PROMISED bytes are the same in every version of the table (above). */
struct table_head {
	uint64_t magic;
	uint32_t version;
	uint32_t head_bytes; /* the first slot begins there */
	uint32_t slot_bytes;
	uint32_t signalled_at, signalled_count; /* `signalled`, from the beginning of the file */
	uint32_t unused;
	char boot[CLOCK_BOOT_BYTES];
	uint64_t sum; /* of all of the above: table_file.h */
	uint64_t time_dev,
		time_ino;      /* the time namespace whose CLOCK_BOOTTIME the times below are of; 0: there are none */
	int64_t freeze_at_ns;  /* CLOCK_BOOTTIME: holders must be stopped from then on; 0: no lease so far */
	int64_t deadline_ns;   /* leases are sure until then */
	int64_t pins_until_ns; /* no pin that was given ends later */

	uint64_t id;                 /* the text area has the same */
	char host[STORE_HOST_BYTES]; /* whose leases they are; "": not named yet. Its first byte is written last */
	int32_t parent;
	uint32_t ending;                       /* the parent's: how it was told to end (enum table_told) */
	int64_t alive;                         /* counts up while the keeper's loop turns */
	uint64_t incarnation;                  /* counts the incarnations of the store that this table has seen */
	char incarnations[2][STORE_INC_BYTES]; /* the present one is [incarnation % 2] */
	uint32_t used;                         /* slots beyond this were never taken */
	uint32_t first;                        /* where to begin the search for a free one: a hint */
	uint32_t frozen_count;                 /* the parent's: how many processes it holds stopped */
	uint32_t caller_count;
	int64_t callers_ns;              /* freeze_at_ns when the first of the callers was added, in this store */
	uint64_t busy[TABLE_SLOTS / 64]; /* a bit for each slot that is not free, or was not a moment ago */
	struct table_signalled signalled[TABLE_SIGNALLED]; /* the parent's */
	struct table_caller callers[TABLE_CALLERS];
	/* Zeros in a table that an earlier keeper of this version of the table has made. */
	uint64_t file_dev, file_ino; /* of this file: so a copy of it shows that it is one */
	uint64_t seat[2];            /* store_keep_seat() */
	char twin
		[STORE_HOST_BYTES]; /* the host whose id this one had, beside another keeper (table_disown()); "": none */
	uint64_t seen[2];           /* store_keep_seen() */
};
#define TABLE_HEAD_PROMISED offsetof(struct table_head, id)

/* Of a store other than the first: as in struct table_head. */
struct table_member {
	int64_t freeze_at_ns, deadline_ns, callers_ns;
	uint64_t incarnation;
	char incarnations[2][STORE_INC_BYTES];
	uint64_t seat[2], seen[2];
};
/* Where a table has such a field of a store. */
#define TABLE_OF(table, member, field) ((member) ? &(table)->others[(member)-1].field : &(table)->head->field)

struct deeds;

/* This process's view of the table. Filled by table_open(); a forked keeper uses its copy. */
struct table {
	struct table_head *head;
	struct table_slot *slots;    /* after the head */
	struct table_member *others; /* of the stores but the first */
	int dir_fd;                  /* not owned */
	int fd;
	uint32_t room;            /* slots that the file has room for, as far as this process knows */
	uint64_t boot;            /* a number for the present boot */
	struct underway underway; /* calls under way */
	struct deeds *deeds;      /* what the parent did (deeds.h); NULL: no notes are taken */
	struct {
		int fd; /* -1: not open (the parent) */
		char *map;
		uint64_t bytes;
	} text;
};

/* --- words --- */

#define TABLE_GENERATION_SHIFT 16
static inline uint64_t table_word(enum table_state state, enum wire_mode mode, uint64_t generation)
{
	return generation << TABLE_GENERATION_SHIFT | (uint64_t)mode << 8 | (uint64_t)state;
}
static inline uint64_t table_word_generation(uint64_t word)
{
	return word >> TABLE_GENERATION_SHIFT;
}
static inline uint32_t table_slot_space(const struct table_slot *slot)
{
	return __atomic_load_n(&slot->space, __ATOMIC_RELAXED) & TABLE_ANY_SPACE;
}
/* Of a damaged slot, the first: of another version's, all times are there. */
static inline unsigned table_slot_member(const struct table_slot *slot)
{
	unsigned member = __atomic_load_n(&slot->space, __ATOMIC_RELAXED) >> TABLE_MEMBER_SHIFT;

	return member < TABLE_MEMBERS ? member : 0;
}
/* An unknown state counts as a lease that is not sure: its holders are stopped in time, and the next keeper finds the
 * damage. */
static inline enum table_state table_word_state(uint64_t word)
{
	unsigned state = word & 0xff;

	return state < TABLE_STATES ? (enum table_state)state : TABLE_UNSURE;
}
static inline enum wire_mode table_word_mode(uint64_t word)
{
	return (word >> 8 & 0xff) == WIRE_SHARED ? WIRE_SHARED : WIRE_EXCLUSIVE;
}

/*
 * For the parent, which must have keeper.lock: opens the table, or makes one. The leases of an earlier keeper become
 * unsure: their holders are stopped at the old deadline unless the next keeper renews in time. 0 or -errno. `why`: if
 * the file cannot be used and is kept as leases.bad, one line that says so, and what becomes of its leases
 * (table_open.c); else "". The caller owns what `table` has then: table_close().
 */
int table_open(struct table *table, int dir_fd, char *why, size_t why_size);
void table_close(struct table *table);

/* For the keeper: are these files in that directory? */
bool table_is_there(const struct table *table, int dir_fd);
/*
 * For the keeper, which must have keeper.lock of that directory: makes the files there anew, as they are in memory, for the next
 * parent. What is written to this table later does not reach them. 0 or -errno.
 */
int table_restore(struct table *table, int dir_fd);

/* --- both sides --- */

/* How many slots may be read (table_file.c). */
uint32_t table_used(struct table *table);
static inline enum table_state table_state(const struct table *table, uint32_t slot)
{
	return table_word_state(__atomic_load_n(&table->slots[slot].word, __ATOMIC_ACQUIRE));
}
/* Is there a lease, or one whose holders are to be killed? */
bool table_in_use(struct table *table);
/* How many processes the parent holds stopped. */
unsigned table_frozen(const struct table *table);

/* --- the keeper's transitions: each slot is one lease's, from table_ask() to table_vacate() or table_lose() --- */

struct table_lease {
	const char *token, *name, *path;
	struct holders_file file;
	struct store_range range;
	uid_t uid;
	unsigned member; /* which of the host's stores has it */
	enum on_lost on_lost;
};

/* Before the store is asked for it. 0 and *slot; -ENFILE: TABLE_SLOTS are in use; -ENOSPC, -EDQUOT: no room on the file
 * system; -EINVAL: an empty name or path, or one that is too long. */
int table_ask(struct table *table, const struct table_lease *lease, uint32_t *slot);
/* The store granted it, perhaps with a larger range: to be called before any caller is told, and before the page shows
 * it. */
void table_grant(struct table *table, uint32_t slot, uint64_t fence, const struct store_range *range,
		 const struct holders_file *file);
/* The leases may have run out: the store has to confirm it. */
void table_doubt(struct table *table, uint32_t slot);
/* The store confirmed it, under its present incarnation: to be called before the lease opens. */
void table_confirm(struct table *table, uint32_t slot);
void table_hold(struct table *table, uint32_t slot);
/* The lease is shared from now on: to be called before the shrink is sent. */
void table_share(struct table *table, uint32_t slot);
/* The lease goes back: to be called before the release is sent. */
void table_return(struct table *table, uint32_t slot);
/* The store does not have it any more, and no process relied on it. */
void table_vacate(struct table *table, uint32_t slot);
/* It was lost: its holders are to be killed, or not (ON_LOST_WARN, unless it was broken). The slot is the parent's from
 * now on. */
void table_lose(struct table *table, uint32_t slot, enum table_why why);
/* Before table_lose() with TABLE_WHY_BROKEN: a user who is not trusted wants that, so only its processes are ended. */
void table_break_for(struct table *table, uint32_t slot, uid_t uid);
/* Any process. Are processes of this user left alone when the slot's holders are ended? */
bool table_spares(const struct table *table, uint32_t slot, uid_t uid);
/* Has the parent yet to end the holders of the lease that the slot had with this generation? */
bool table_is_ending(struct table *table, uint32_t slot, uint64_t generation);
uint64_t table_generation(const struct table *table, uint32_t slot);

void table_set_on_lost(struct table *table, uint32_t slot, enum on_lost on_lost);
/* The kernel's number of a slot's file. False, with 0: it is not known. */
bool table_learnt(const struct table *table, uint32_t slot, uint64_t *kernel_dev, uint64_t *kernel_ino);
void table_learn(struct table *table, uint32_t slot, uint64_t kernel_dev, uint64_t kernel_ino);

/* --- the parent's --- */

/* A slot as it was at one moment: all of one lease, never a mixture of two. Impossible values become values on the safe
 * side: an invalid range becomes the whole file. */
struct table_view {
	enum table_state state;
	uint64_t generation;
	struct holders_file file;
	enum wire_space space;
	bool any_space; /* all locks on the file: the slot is damaged */
	int64_t from, to;
	enum on_lost on_lost;
	enum table_why why;
};
void table_view(const struct table *table, uint32_t slot, struct table_view *out);
enum on_lost table_on_lost(const struct table *table, uint32_t slot);
/* Moves the slot from the state `from` to another one. False: it was not in `from`. */
bool table_move(struct table *table, uint32_t slot, enum table_state from, enum table_state to);
/* The next keeper must confirm a dead keeper's leases. To be called while no keeper runs. */
void table_unsure(struct table *table);
/* The holder of a lock under this lease, as it was when `generation` was read, cannot be stopped. */
void table_set_hidden(struct table *table, uint32_t slot, uint64_t generation, bool hidden);
/* Is that so? Known only while the leases are unsure. Both sides. */
bool table_is_hidden(const struct table *table, uint32_t slot);

/*
 * --- notes (table_notes.c): what keeper and parent tell each other besides the leases themselves: until when leases are sure, which
 * callers rely on nothing, that the parent should look now, and the holders of which leases it still has to kill ---
 */

/* The leases in this store are sure until this deadline. */
void table_renewed(struct table *table, unsigned member, int64_t freeze_at_ns, int64_t deadline_ns);
/* To be called before a caller is told of its pin: the next keeper gives nothing back before the last pin has ended. */
void table_pinned(struct table *table, int64_t until_ns);
/* Until when the pins of an earlier keeper may last, as far as the table knows; not later than `most_ns`. */
int64_t table_pins_until(const struct table *table, int64_t most_ns);
/* A process is in a lock call without an answer; only when the leases have ceased to be sure. */
void table_add_caller(struct table *table, const struct table_caller *caller);
/* Those of an outage of this store that is over: each of them may have its answer since. */
void table_forget_callers(struct table *table, unsigned member);
/* Tells the parent to look now. */
void table_notify(const struct table *table);
/* The loop turned: the parent counts on it. */
void table_alive(struct table *table);
/* Was a lease lost whose holders the parent has yet to kill? False if the parent has died: then no process will kill
 * them. */
bool table_has_lost(struct table *table);
/* The same for leases of this file and space. */
bool table_has_lost_on(struct table *table, uint64_t dev, uint64_t ino, enum wire_space space);

/* The parent's. */
bool table_has_caller(const struct table *table, const struct table_caller *caller);
/*
 * For how long the keeper's loop may stand still until it counts as hanging: shorter where the leases run out soon.
 * since_ns: when it turned last.
 */
int64_t table_patience_ns(struct table *table, int64_t since_ns);

/* --- what an earlier keeper left (table_left.c): for the keeper, before its loop runs --- */

struct table_entry {
	uint32_t slot;
	bool unsure;    /* a lease that the store has to confirm; else it goes back: no process relies on it */
	bool forgotten; /* unsure: the store has lost its memory since it last confirmed the lease */
	const char *token, *name, *path; /* good during the call */
	struct store_range range;
	uint64_t fence;
	uint64_t dev, ino;
	uid_t uid;
	unsigned member;
};
/* False: there is no memory for the lease. It is then lost like a damaged one. */
typedef bool table_entry_cb(void *arg, const struct table_entry *entry);

/*
 * Opens the text area and calls back for each lease of the table. Leases that go back are TABLE_RETURNED already. 0 or
 * -errno; *damaged: how many leases cannot be read. They stay unsure until table_lose_damaged(); call that when all
 * pins have ended.
 */
int table_take_up(struct table *table, table_entry_cb *cb, void *arg, unsigned *damaged);
void table_lose_damaged(struct table *table);

/* The host whose leases the table has: copies its name to `host`; if the table has no name, takes that of `host`. */
void table_host(struct table *table, char host[STORE_HOST_BYTES]);
/*
 * Another keeper uses the host's id: nothing of the table may be renewed or given back under it. The leases become damaged ones, unsure
 * from now on, and the table has no host any more; head->twin says which it was. The next keeper loses them, as another host.
 */
void table_disown(struct table *table);
/* It was told often enough. */
void table_forget_twin(struct table *table);
/* The host leaves the store, without leases: the next keeper is another host. */
void table_forget_host(struct table *table);
/* The incarnation of this store that the keepers of this table have seen last; "": none. */
const char *table_incarnation(const struct table *table, unsigned member);
void table_set_incarnation(struct table *table, unsigned member, const char *incarnation);

#endif
