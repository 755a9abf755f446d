/*
 * The store as the keeper sees it: where leases are recorded, and by which hosts send each other messages. Which server that is,
 * and how it is reached, is the matter of an engine (internal.h), which the configuration names.
 *
 * Asynchronous, single-threaded: everything here is called from the event loop, and every callback comes from the loop,
 * never from inside the call that asked (store_free() excepted). Each request's callback comes exactly once, also when
 * the connection breaks or the store is freed: then with status STORE_UNREACHABLE, which after an acquire means "maybe
 * granted". The store reconnects by itself (after 0.1 s, doubling to 2 s) and reports that with on_up and on_down. A
 * request made while it is down gets STORE_UNREACHABLE from the next turn of the loop.
 *
 * A connection or an answer that takes longer than connect_ms counts as broken: on_down. The process must ignore
 * SIGPIPE. A request for which there is no memory ends the process with a line.
 *
 * An answer binds: what it says was granted, renewed or begun is not lost, or the loss begins a new incarnation. A server that
 * cannot promise that of an answer has not answered: the store counts as unreachable.
 *
 * on_up comes when requests can be sent, messages come, it was checked that this is a server that will do, and the incarnation record
 * was read or begun.
 */
#ifndef DFLOCK_STORE_STORE_H
#define DFLOCK_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "config/config.h"
#include "store/histogram.h"
#include "wire/msg.h"
#include "wire/range.h"

#define STORE_KEY_BYTES     544 /* FORMAT KEY */
#define STORE_CLIENT_BYTES  9   /* of a client's token, for people: printable */
#define STORE_MAX_BLOCKERS  16  /* in one answer */
#define STORE_VERSION_BYTES 64  /* store_version() */

/* A job, as a host names it to other hosts. */
#define JOB_COMMAND_BYTES 16 /* the kernel's name of a process: 15 bytes and NUL */
struct store_job {
	int pid;                         /* in the pid namespace of its keeper; 0: not known, or not told */
	int64_t since;                   /* Unix time in seconds by its host's clock; 0: not known */
	char command[JOB_COMMAND_BYTES]; /* printable (text_make_printable()); "": not known. Never with arguments */
};

enum store_status {
	STORE_OK,          /* acquire: granted. release: given back. beat: counted. confirm: it stands */
	STORE_WAIT,        /* acquire: queued; the blockers were told */
	STORE_BUSY,        /* acquire with `ask`: others wait already; not queued */
	STORE_REST,        /* acquire: the name rests (at_least_ms); queued, with `ask` not */
	STORE_TAKEN,       /* acquire: a client of the server has the key of the name; ditto */
	STORE_GONE,        /* confirm, shrink, reclaim: the lease stands no more. sweep: the host is not silent */
	STORE_GRACE,       /* acquire: the shard is in grace, nothing new is granted */
	STORE_INCARNATION, /* the store is another than it was; on_incarnation follows */
	STORE_GIVEN_UP,    /* acquire, confirm, reclaim, beat: an operator gave this host up; nothing was done */
	STORE_LIMIT,       /* acquire: the name has 1,000 leases and waiters */
	STORE_UNREACHABLE, /* no answer; `error` says why */
	STORE_ERROR, /* the request is malformed, or the store answered with an error: script error, wrong type, out
			of memory, no permission. `error` says which */
};

/* What a beat found of the keys of this host's leases (store_acquire's `key`). */
enum store_key_state {
	STORE_KEY_BACK,  /* it was gone, and was put back */
	STORE_KEY_EXTRA, /* nothing; but the host may not know of this lease */
	/* The lease is lost: */
	STORE_KEY_TAKEN,   /* a client has the key */
	STORE_KEY_EXPIRED, /* it was not renewed in time, so a client may have had it */
	STORE_KEY_OTHER,   /* it is no lock any more: something else wrote there */
	STORE_KEY_LOST,    /* one of these, at an earlier beat */
	STORE_KEY_STATES
};
struct store_key_news {
	enum store_key_state state;
	char token[STORE_TOKEN_BYTES];
	char name[LOCK_NAME_BYTES]; /* of the lock; not trusted */
};

struct store_reply {
	enum store_status status;
	uint64_t fence;      /* STORE_OK of acquire, confirm, reclaim */
	enum wire_mode mode; /* the same: the mode that is recorded */
	const char *key; /* STORE_OK of confirm, reclaim: the key of the lease, valid during the callback; NULL: none */
	int64_t from, to; /* STORE_OK of acquire: what is granted, if it is more than was asked for; else to is 0 */
	uint64_t
		arrival; /* STORE_GIVEN_UP: the mark. STORE_WAIT, STORE_REST: the store's time of this answer (microseconds); 0: not queued */
	int64_t rest_ms;  /* STORE_REST: how long it still rests; else 0 */
	int64_t taken_ms; /* STORE_TAKEN: how long the client's key lasts, unless it is renewed; -1: for ever */
	char client
		[STORE_CLIENT_BYTES]; /* STORE_TAKEN: the beginning of its token; "": none has the key, which is left free for clients */
	size_t key_count;                  /* STORE_OK of beat */
	const struct store_key_news *keys; /* valid during the callback */
	size_t blocker_count;              /* STORE_WAIT, STORE_BUSY, STORE_REST */
	struct store_blocker blockers[STORE_MAX_BLOCKERS];
	const char *error; /* STORE_UNREACHABLE, STORE_ERROR: one line, valid during the callback */
};
typedef void store_reply_cb(void *arg, const struct store_reply *reply);

/* A message from another host or from a script, for this host. The text was checked: strings are bounded and
 * NUL-terminated, ranges are not empty. The content is not trusted: a token may be unknown here. */
enum store_message_kind {
	STORE_MSG_RECALL,  /* `asker` waits for `range`, of which the lease `token` covers a part; with `ask` it only
			      asks,  and waits no longer than its probe_ms */
	STORE_MSG_GRANTED, /* by hand-over: `token` is now a lease, with `fence` */
	STORE_MSG_AGAIN,   /* `token` would be granted if no client had its key: its host should ask for it again */
	STORE_MSG_CHASE,   /* between keepers: a search for a cycle of waiters (keeper/callers/deadlock.h) */
	STORE_MSG_IN_USE,  /* the answer to a recall with `ask`: `token` (the asker's) will not be granted now */
	STORE_MSG_BREAK,   /* an operator on the host `asker` wants the lease `fence` of this host to be taken away */
	STORE_MSG_BROKEN,  /* the answer of the host `holder`: what became of it */
	STORE_MSG_WHO, /* between keepers: which processes of this host hold locks of `name`? `asker` wants to know, and
			      calls its question `token` */
	STORE_MSG_HOLDER,  /* one answer to that question: one lock of one process. No name */
	STORE_MSG_TWICE,   /* the host `holder` was one with this host's id until it found out. No name, no token */
	STORE_MSG_HOLDERS, /* the last answer to that question. No name */
	STORE_MSG_KINDS
};
/* What became of a lease that was to be taken away (keeper/leases/breaking.h). */
enum store_broken {
	STORE_BROKEN_DONE,        /* its holders have ended, and it was released */
	STORE_BROKEN_GONE,        /* the host has no such lease */
	STORE_BROKEN_NOT_YOURS,   /* it stays: a process that would have to end is another user's */
	STORE_BROKEN_UNSTOPPABLE, /* it stays: a process cannot be ended by that keeper */
	STORE_BROKEN_YOUNGER,     /* it stays: a younger lease of that host covers the same range */
	STORE_BROKEN_UNSURE,      /* it stays: the store is away from that host, or has not confirmed the lease */
	STORE_BROKEN_LATE,        /* it takes too long: it may be taken away later */
	STORE_BROKEN_FAILED,      /* it stays: the host's log says why */
	STORE_BROKEN_FORBIDDEN,   /* it stays: that host's configuration does not allow it (allow_break) */
	STORE_BROKENS
};
struct store_message {
	enum store_message_kind kind;
	char name[LOCK_NAME_BYTES];    /* BROKEN: "" */
	char token[STORE_TOKEN_BYTES]; /* RECALL, BREAK: of the lease in the way. Else of this host's own request */
	char asker[STORE_HOST_BYTES];  /* RECALL, BREAK */
	char holder[STORE_HOST_BYTES]; /* IN_USE, BROKEN: the host that says so */
	char asker_token[STORE_TOKEN_BYTES]; /* RECALL */
	struct store_range range;            /* RECALL: what the asker wants. IN_USE: what is in its way */
	bool ask;                            /* RECALL */
	uint64_t fence;                      /* GRANTED, BREAK */
	char incarnation[STORE_INC_BYTES];   /* GRANTED: in which it was granted */
	uint64_t limit;                      /* BREAK: the largest fence that the operator has seen */
	uint64_t question;                   /* BREAK, BROKEN: the asker's number for it */
	enum store_broken broken;            /* BROKEN */
	int pid;                             /* BROKEN: the process that is the reason; 0: none is */
	bool provisional;         /* GRANTED: what was granted may still be lost; acquire with the same token asks */
	struct store_chase chase; /* CHASE */
	struct store_job job;     /* HOLDER: of `holder`, with `range` */
	uint64_t count;           /* HOLDERS: how many locks `holder` has found; not all may have been told */
};

struct store_callbacks {
	void (*on_up)(void *arg);
	/* Once after each on_up; and while it cannot get up, once for each new reason. The callbacks of all requests
	 * come first. */
	void (*on_down)(void *arg, const char *why);
	/* The incarnation is another than before (also at the first connection: `old` is ""). Each loss of memory
	 * begins a new one, FLUSHALL too: what was granted under the old one is gone unless it is confirmed. */
	void (*on_incarnation)(void *arg, const char *old, const char *now);
	void (*on_message)(void *arg, const struct store_message *message);
	/* A key that is watched (store_watch_key()) may have been released. May be NULL if none is watched. */
	void (*on_key)(void *arg, const char *key);
	/*
	 * Another keeper uses this host's id: a copy of this keeper's memory or runtime directory. The store is down, and what this
	 * host has is the other keeper's: nothing may be sent as this host any more. May be NULL.
	 */
	void (*on_twice)(void *arg);
	/* The record was read: whether it has this ttl_ms and number of shards. May be NULL. */
	void (*on_record)(void *arg, bool agrees);
	/* A line for the log: a malformed message was ignored (once per on_up), or a message to another host was
	 * refused. May be NULL. */
	void (*on_note)(void *arg, const char *line);
};

struct store;
struct engine;

/* The engine of this store. Loads it if it is an object of its own, which then stays. NULL with a line in `why`: it is not there, or is
 * no use. Blocks on the file system of the installation. */
const struct engine *store_engine(const struct config_store *config, char *why, size_t why_size);
/* Starts connecting. `config` must live as long as the store; `host`, this host's id, and `callbacks` are copied. NULL:
 * out of memory, or there is no engine: ask store_engine() before. */
struct store *store_new(uv_loop_t *loop, const struct config_store *config, int64_t ttl_ms, const char *host,
			const struct store_callbacks *callbacks, void *arg);
/*
 * Where the store keeps the seat of this host, and the next one; before the loop runs. Each beat, and the first script on each
 * connection, moves the host from its seat to the next one, which was just drawn. So of two keepers with the same words the
 * second one that asks is found out (on_twice), before its connection is used for anything else. The next keeper of the host must
 * have these words: they are in its table of leases.
 */
void store_keep_seat(struct store *s, uint64_t seat[2]);
/* The same for what an engine remembers of the server. A server that was restored from a backup looks like the one that it was; the next keeper,
 * too, finds out by this that it lacks what it had confirmed. */
void store_keep_seen(struct store *s, uint64_t seen[2]);
/*
 * This is one shard of the store, not the first: a lock table of its own. Before the loop runs. It connects only after store_reach(), and
 * counts as away until store_admit() says that its names are in it: that the first shard's record has the same number of shards (host.h).
 */
void store_be_shard(struct store *s, unsigned shard);
/* Connects, if it does not already. */
void store_reach(struct store *s);
/* Gives the connection up until store_reach(); on_down does not come. What is asked for meanwhile gets STORE_UNREACHABLE. */
void store_rest(struct store *s);
void store_admit(struct store *s);
/* It counts as away again: on_down, if it was up. */
void store_shut(struct store *s, const char *why);
/* Asks for the record again: on_record comes, unless the store goes down. While it is down nothing happens. */
void store_reread_record(struct store *s);
/* Calls every pending callback with STORE_UNREACHABLE and frees the store; its handles are closed in the loop, which
 * must run once more. Not to be called from a callback of the store. */
void store_free(struct store *s);

bool store_is_up(const struct store *s);
const char *store_incarnation(const struct store *s); /* "" before the first on_up */
bool store_in_grace(const struct store *s);           /* as last seen */
const char *store_last_error(const struct store *s);  /* why it is down, one line; "" */
const char *
store_trouble(const struct store *s); /* for messages: "is not reachable", or "cannot be used" (it answers) */
const char *store_version(const struct store *s);     /* of the server, as last seen; "" */
const char *store_engine_name(const struct store *s); /* "redis", or the setting that names another one */
const char *store_server(const struct store *s);      /* for people: host:port, the socket, or "master at host:port" */

/* What was asked since store_new(); none of it ever goes back. */
#define STORE_OPERATIONS 16 /* the scripts, and "other": all other commands of requests */
struct store_counts {
	uint64_t asked[STORE_OPERATIONS]; /* that were sent, by store_operation_name(); PING, WAIT and the steps of a
					   * connection do not count */
	uint64_t errors;                  /* of these: the server answered with an error */
	uint64_t unanswered;              /* of these: the connection broke before, or the answer did not bind */
	struct histogram took;            /* of these: all that were answered, errors too; until the answer bound */
	uint64_t connected;               /* on_up */
	uint64_t broken;                  /* on_down after on_up */
};
const struct store_counts *store_counts(const struct store *s);
/* "acquire", "beat", ...; operation < STORE_OPERATIONS. */
const char *store_operation_name(size_t operation);

/*
 * acquire grants the range, or queues the request and tells the hosts in the way. Idempotent per token: the same token
 * asks again, or confirms what was granted.
 * `ask`    the caller does not wait long, and the holders are asked whether they really use it
 * `insist` with ask: also where others wait that the holders know of. Else the answer may be STORE_BUSY: nobody was asked
 * `pass`   may pass waiters (not holders)
 * `beat`   this counts as a beat of this host, too
 * `grow`   if no other owner has or waits for anything of this name and space, the whole range is granted
 * `rest_ms` this lease is for one lock of one caller: it excludes other leases of its own owner, too, and for so long
 *          after its grant nothing of the name and space is granted to anybody, this host included. 0: it is a lease as
 *          others. The range must be the whole one, exclusive
 * `key`    "FORMAT KEY": the lease is also the lock of this key, for clients of the server that take it in such a format; it excludes
 *          other leases of its own owner with the key, too. The range must be the whole one, exclusive. NULL: none
 * `job`    which program asks; "" or job_format()'s text. Recorded with the lease, for people
 * `dead`   hosts whose beat this keeper has watched unchanged for a whole ttl, or that did not answer and were silent for
 *          dead_ms, at most STORE_MAX_BLOCKERS; what they have is dropped if their beat is still that one. This host
 *          itself is never dropped
 *
 * A name that is empty or too long, a token that is not 32 lower-case hex digits, a file that is empty, too long or has
 * blanks, and an empty range are answered STORE_ERROR.
 */
struct store_acquire {
	const char *name, *file, *token, *job;
	struct store_range range;
	bool ask, insist, pass, beat, grow;
	int64_t rest_ms;
	const char *key;
	const struct store_blocker *dead;
	size_t dead_count;
};
void store_acquire(struct store *s, const struct store_acquire *a, store_reply_cb *cb, void *arg);

/* Gives a lease back, or cancels a waiting request, and hands over to the waiters. STORE_OK also for an unknown
 * token. `unused`: no caller was ever told of the lease, so the rest that it began (rest_ms) ends with it. */
void store_release(struct store *s, const char *name, const char *token, bool unused, store_reply_cb *cb, void *arg);
/* From now on, on_key comes when this key ("FORMAT KEY") may have been released by a client: as far as the server or the
 * client says so. Once for each key; stands until store_unwatch_key(). */
void store_watch_key(struct store *s, const char *key);
void store_unwatch_key(struct store *s, const char *key);

/*
 * A release that is prepared now, and that another thread may send later. Everything but store_shot_fire() in the loop.
 *
 * store_prepare_release(): as store_release(), but nothing is sent. NULL where only the loop can send: the store is away, or
 * reached by TLS.
 * store_shot_fire(): at most once, from any thread; never waits, but for the loop's own write of a command. True: it is sent, and
 * `cb` will be called once, as by store_release(). False: the server will not execute it, and `cb` is not called. If the
 * store has been reached anew since, it goes there: a record that is not the one of then answers STORE_INCARNATION.
 * store_shot_free(): always, before store_free() and when no thread can fire it any more.
 */
struct store_shot;
struct store_shot *store_prepare_release(struct store *s, const char *name, const char *token, bool unused,
					 store_reply_cb *cb, void *arg);
bool store_shot_fire(struct store_shot *shot);
void store_shot_free(struct store_shot *shot);
/* Makes an exclusive lease a shared one, and hands over. STORE_GONE if it stands no more. */
void store_shrink(struct store *s, const char *name, const char *token, store_reply_cb *cb, void *arg);
/* Does the lease (token and fence) still stand? Raises the beat. */
void store_confirm(struct store *s, const char *name, const char *token, uint64_t fence, store_reply_cb *cb, void *arg);
/* In grace: puts back a lease that the store has forgotten; the host's deadline must not have passed. STORE_GONE: grace
 * is over, a younger lease is in the way, or a client has the key. */
void store_reclaim(struct store *s, const char *name, const char *file, const char *token, uint64_t fence,
		   const struct store_range *range, const char *key, store_reply_cb *cb, void *arg);
/* Renews all leases of this host. STORE_GIVEN_UP: an operator gave this host up (store_give_up()), and what it had may be
 * gone: nothing was renewed. `mark` is what that answer said in `arrival`, once the caller has acted on it; else 0. `keyed`: how many leases with a key
 * this host knows of. */
void store_beat(struct store *s, uint64_t mark, size_t keyed, store_reply_cb *cb, void *arg);
/* Ends the rests of the name in this space that a lease with a fence of at most `limit` began, and grants to the
 * waiters. STORE_OK; STORE_GONE: there is no such rest. */
void store_end_rest(struct store *s, const char *name, enum wire_space space, uint64_t limit, store_reply_cb *cb,
		    void *arg);
enum store_open {
	STORE_OPEN_WATCHED, /* the caller has watched this incarnation for a whole ttl */
	STORE_OPEN_NEW,     /* the caller has watched it only for as long as hosts with leases take to come back.
			       STORE_ERROR     with what the store knows of an earlier memory, if it knows anything */
	STORE_OPEN_FORCED, /* whatever is known, and the record gets this ttl_ms and number of shards. Works also while the store is down
			       because its record has others, and while it is shut */
	STORE_OPEN_MAY, /* would STORE_OPEN_FORCED be refused? Changes nothing */
	STORE_OPEN_TAKE, /* gives the record this ttl_ms and number of shards; one that changes, or was in grace, is in grace then */
	STORE_OPEN_TAKEN, /* opens the incarnation that STORE_OPEN_TAKE left. STORE_INCARNATION: the store has another one */
};
/* Ends grace. `earlier`: with STORE_OPEN_NEW another incarnation that the caller has known, "" if none. */
void store_open(struct store *s, enum store_open how, const char *earlier, store_reply_cb *cb, void *arg);
/* Sends a message of a keeper (STORE_MSG_IN_USE, CHASE, BREAK, BROKEN, TWICE, WHO, HOLDER, HOLDERS) to a host, with this host as `asker`
 * or `holder`. No reply; it may be lost, and is not sent if the store is away or a field is malformed: the question that it is
 * about ends by the asker's own time limit. */
void store_tell(struct store *s, const char *host, const struct store_message *message);
/* Asks whether the store would write something new now. It would not while it is full or
 * may only be read. Writes nothing. STORE_OK; STORE_ERROR with what to do; or STORE_UNREACHABLE. */
void store_try_write(struct store *s, store_reply_cb *cb, void *arg);
/* In its callback: settings of the server by which it could refuse all writes, and so stop all jobs: one line that says when, and what to
 * do; "": none. NULL: they cannot be seen (it takes a right that dflock does not need). */
const char *store_risk(const struct store *s);
/* This host ends: removes its beat. Send it last. */
void store_leave(struct store *s, store_reply_cb *cb, void *arg);

/* Every host with its beat, for sweeping. `hosts` is valid during the callback; `count` is 0 unless the status is
 * STORE_OK. The rows are as those of blockers, but never waiters. */
typedef void store_hosts_cb(void *arg, enum store_status status, const struct store_blocker *hosts, size_t count);
void store_hosts(struct store *s, store_hosts_cb *cb, void *arg);
/* Removes what a silent host left in all locks, as long as its beat is still that one, and then the host. STORE_GONE:
 * it is not silent. */
void store_sweep(struct store *s, const struct store_blocker *host, store_reply_cb *cb, void *arg);

/* The same for a host that an operator gives up, perhaps before it was silent for long. If it lives, its next beat is
 * answered STORE_GIVEN_UP, before anything else counts as a renewal of its leases. */
void store_give_up(struct store *s, const struct store_blocker *host, store_reply_cb *cb, void *arg);

/* What one lock has: leases and waiters of all hosts. entries are valid during the callback; count is 0 unless the status
 * is STORE_OK. `key` is that of the caller's rule ("FORMAT KEY", NULL: none). */
struct store_aside {
	int64_t rest_ms[WIRE_SPACES];    /* for how long its spaces still rest; 0: they do not */
	char client[STORE_CLIENT_BYTES]; /* a client has the key: the beginning of its token; "": none has it */
	const char *key;                 /* ... this one; NULL: none has it */
	int64_t client_ms;               /* ... for so long, unless it renews it; -1: for ever */
};
struct store_entry {
	char host[STORE_HOST_BYTES];
	char file[STORE_FILE_BYTES];
	char token[STORE_TOKEN_BYTES];
	struct store_range range;
	uint64_t fence; /* 0: a waiter */
	bool waiter;
	bool old;             /* of a host whose version does not know STORE_MSG_WHO */
	struct store_job job; /* which program asked for it; pid 0: not known */
};
typedef void store_entries_cb(void *arg, enum store_status status, const struct store_entry *entries, size_t count,
			      const struct store_aside *aside);
void store_entries(struct store *s, const char *name, const char *key, store_entries_cb *cb, void *arg);

/* ---- for people: by which rules hosts go. No lease depends on it ---- */

/* This host's rules (config/ruleset.h). */
struct store_posting {
	const char *place;  /* one word: which keeper of which machine; the next keeper there has the same */
	const char *digest; /* RULESET_DIGEST_BYTES */
	const char *text;   /* "": too long to be compared */
	int64_t keep_ms;    /* the store forgets it after this */
};
/* Records it in place of what was recorded for this place. STORE_OK; STORE_LIMIT: there is no room for another place;
 * STORE_ERROR; or STORE_UNREACHABLE. Whatever the answer is, the connection stays. */
void store_post_rules(struct store *s, const struct store_posting *posting, store_reply_cb *cb, void *arg);

#define STORE_MAX_RULESETS  16
#define STORE_RULESET_HOSTS 3
/* Rules other than this host's, and the hosts that go by them. */
struct store_ruleset {
	uint64_t places; /* how many keepers */
	size_t host_count;
	struct {
		char host[STORE_HOST_BYTES];
		int64_t age_ms; /* since it was recorded */
	} hosts[STORE_RULESET_HOSTS];
	const char *text; /* of any bytes, len of them; "": unknown */
	size_t len;
};
struct store_rules {
	uint64_t same;     /* other keepers with the same rules as this one */
	uint64_t unknown;  /* hosts that hold leases, or did lately, and have recorded nothing: of an older version */
	uint64_t left_out; /* keepers whose rules are not in `sets`, because there are too many different ones */
	size_t count;
	struct store_ruleset sets[STORE_MAX_RULESETS];
};
/* `rules` is valid during the callback; NULL: `error` says why. */
typedef void store_rules_cb(void *arg, const struct store_rules *rules, const char *error);
void store_read_rules(struct store *s, const char *place, const char *digest, store_rules_cb *cb, void *arg);

/* The whole store, for status. Not atomic over several names. */
struct store_picture {
	const char *incarnation; /* any bytes */
	bool open;
	int64_t ttl_ms, fence; /* of the record; -1: it has none */
	const struct store_blocker *hosts;
	size_t host_count;
};
/* What is given to these is valid during the call. */
struct store_dump {
	void (*on_record)(void *arg, const struct store_picture *record); /* first */
	/* What a name has: leases and waiters, or a rest. Sometimes twice for one name. */
	void (*on_name)(void *arg, const char *name, const struct store_entry *entries, size_t count,
			const struct store_aside *aside);
	void (*on_end)(void *arg, const char *error); /* once; NULL: all was told */
};
void store_dump(struct store *s, const struct store_dump *to, void *arg);

#endif
