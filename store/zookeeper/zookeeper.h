/*
 * The files of the ZooKeeper engine. Each calls only files above it in this list:
 *
 *   nodes.c     where cells are: paths, and what is in a node (pure)
 *   session.c   a connection to one server of the ensemble, in the loop
 *   calls.c     what is asked over it
 *   start.c     what a new connection does first: the tree, the clock, the mailbox
 *   load.c      the nodes and lists that a rule asks for
 *   commit.c    what a rule has read and written, as one multi-op
 *   clean.c     nodes that have nothing any more
 *   engine.c    the queries, one after the other; struct engine
 *
 * The tree, below the path of the configuration:
 *
 *   /store           the record, but for what follows; and `memory`, a random number: the identity that the rules compare
 *   /locks/NAME      all that the store has of one name: the lock, its rests, the incarnation that wrote it, the last fence
 *   /names/NAME      that /locks/NAME was made, and in which incarnation: so that its removal by somebody else is found out
 *   /hosts/HOST      beat, seat, mark
 *   /messages/HOST   messages to a host: each is the name of a child
 *   /rules, /rules/PLACE, /texts/DIGEST   for people (post.lua)
 *   /clock           is written to learn the time of the leader
 *
 * A node stays when what it had is gone, with its version: else one that came and went between load and commit would look as
 * if nothing had happened.
 */
#ifndef DFLOCK_STORE_ZOOKEEPER_ZOOKEEPER_H
#define DFLOCK_STORE_ZOOKEEPER_ZOOKEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <uthash.h>
#include <uv.h>
#include <zookeeper/zookeeper.h>

#include "store/internal.h"
#include "store/replay/replay.h"

#define ZK_MAX_BYTES    1000000 /* of a request: a server closes the connection at 1 MiB */
#define ZK_MAX_MESSAGES 64      /* that wait for one host; more are not sent */

/* ---- nodes.c ---- */

enum zk_kind {
	ZK_STORE,
	ZK_LOCK,
	ZK_NAME,
	ZK_HOST,
	ZK_MAILBOX,
	ZK_RULES,
	ZK_RULE,
	ZK_TEXT,
	ZK_CLOCK,
	ZK_NODES, /* what follows is no node */
	ZK_FENCE = ZK_NODES,
	ZK_ALL,  /* all fields of a hash; `name` is its key */
	ZK_PAGE, /* of the names of locks */
	ZK_NOTHING,
};

/* Where a cell of replay.h is. */
struct zk_place {
	enum zk_kind kind;
	const char *name; /* of the node among its kind: a part of what was given, ended by its NUL; or "" */
	const char *tag;  /* of the cell in the node; ditto */
};
struct zk_place zk_place(const struct query *q, const char *key, const char *name);
/* The name of the lock that the script works on; NULL: it works on none. */
const char *zk_lock_of(const struct query *q);
/* The cell of this tag in a node. False: there is no such tag. The caller frees both. */
bool zk_cell(enum zk_kind kind, const char *name, const char *tag, char **key, char **cell);

/* The path of a node below `root`; name NULL: of the parent of all of its kind. The caller frees it. */
char *zk_path(const char *root, enum zk_kind kind, const char *name);
/* A name of a node for any bytes, and back. The caller frees it. NULL: nobody encoded that. */
char *zk_encode(const char *text);
char *zk_decode(const char *name);

/* What a node has: a line for the format, then tags with values. */
void zk_write_begin(FILE *f);
void zk_write(FILE *f, const char *tag, const char *value, size_t len);
struct zk_reader {
	const char *at, *end;
	char tag[32];
	const char *value;
	size_t len;
};
/* False: dflock did not write this. */
bool zk_read_begin(struct zk_reader *r, const char *data, int len);
/* 1: `tag`, `value`, `len` are the next; 0: that was all; -1: dflock did not write this. */
int zk_read(struct zk_reader *r);

/* A node as a query has loaded it. */
struct zk_node {
	char *path;
	enum zk_kind kind;
	char *name;
	bool asked, loaded, there, used; /* used: it has a cell */
	int32_t version;
	int children;               /* MAILBOX */
	uint64_t fence;             /* STORE, LOCK: its own */
	char memory[64];            /* STORE */
	bool open;                  /* STORE */
	char mark[STORE_INC_BYTES]; /* LOCK: the incarnation in /names */
	bool marked;                /* LOCK: there is such a node */
	bool read, written;         /* commit.c */
	UT_hash_handle hh;
};

/* The nodes of a kind. */
struct zk_list {
	bool asked, loaded;
	int32_t version;  /* of the parent */
	char **names;     /* in the order of zk_hash() */
	int count, start; /* a random one of them */
};

struct zk_query {
	struct query q;
	struct zk_query *next;
	struct replay_run *run; /* NULL: it waits for its turn */
	struct zk_node *nodes;  /* a table by path */
	struct zk_list lists[ZK_NODES];
	unsigned pending, tries;
	bool looked, again; /* it uses nodes that were looked at before; it is run again */
	uint64_t began_ns;
	bool commits;                 /* the rule has ended */
	char wrong[REPLY_LINE_BYTES]; /* a node that cannot be read: one line */
};

/* ---- session.c ---- */

struct zk_session {
	struct zookeeper *zk; /* NULL: given up, and to be freed when its handles are closed */
	zhandle_t *handle;
	uv_poll_t poll;
	uv_timer_t turn;
	int fd; /* of our own: the client closes its descriptor when it likes; -1: none */
	unsigned handles;
	bool connected;
	int failed; /* of a call: to be told from the loop */
	char address[160];
};

struct zk_clock {
	int64_t ms;      /* the leader's clock, when it last wrote something for this host */
	uint64_t got_ns; /* when the answer came */
};

#define ZK_BOXES 64
/* What was seen last of a mailbox. */
struct zk_box {
	char host[STORE_HOST_BYTES]; /* "": nothing */
	int children;
};

#define ZK_SEEN 64
/* A node that was looked at before it was asked for. */
struct zk_seen {
	char *path; /* NULL: none */
	char *data; /* NULL: its answer has not come */
	int len;
	struct Stat stat;
};

struct zookeeper {
	struct store *store;
	struct replay *replay;
	char *root;                 /* the path of the tree */
	char *servers;              /* "h1:2181,..." */
	unsigned server, tried;     /* the next one; how many this attempt has tried */
	struct zk_lookup *lookup;   /* NULL: no name is looked up */
	struct zk_session *session; /* NULL: none. It may not be connected */
	bool up;                    /* queries may be asked */
	int64_t number;             /* start.c: of the last change of this host's node */
	struct zk_query *first, **last;
	uv_timer_t limit, again, mail;
	bool mail_seen;    /* start.c: on this connection messages were delivered, */
	int32_t mail_last; /* this is the number of the last one */
	unsigned timers;   /* that are not closed */
	struct zk_clock clock;
	struct zk_box boxes[ZK_BOXES]; /* load.c: by a hash of the host */
	struct zk_seen seen[ZK_SEEN];  /* load.c: by a hash of the path */
	struct ACL_vector acl;         /* the root's: whatever is made here gets it. count 0: not known so far */
	struct zk_clean *clean;        /* NULL: none is under way */
	uint64_t clean_ns;             /* when the next one begins */
	unsigned clean_turn;
	unsigned cleaned;           /* for tests: that have removed something */
	char why[REPLY_LINE_BYTES]; /* why the last server of this attempt was no use */
};

/* Begins with the next server. Ends in zk_start(), or store_fail(). */
void zk_connect(struct zookeeper *zk);
void zk_disconnect(struct zookeeper *zk);
/* From the loop: ends the session if a call has failed, or else looks what the client waits for. */
void zk_soon(struct zk_session *session);
/* From now on an answer has connect_ms to come: else store_fail(). */
void zk_wait(struct zookeeper *zk);
/* An answer that says that the connection is of no use, or the tree: store_fail(), or store_reject() with what to do. */
void zk_failed(struct zookeeper *zk, int rc, const char *path);
/* The time of the leader. */
void zk_saw(struct zookeeper *zk, const struct Stat *stat);
int64_t zk_now_us(const struct zookeeper *zk);
/* store_see_memory(), for the node of this host: another id has another node. */
void zk_see_memory(const struct zookeeper *zk, const char *memory);
/* Half of the tree is gone: store_reject(). */
void zk_half(struct zookeeper *zk);

/* What files call below this one: pointers that engine.c sets. */
struct zk_up {
	void (*connected)(struct zookeeper *zk); /* session.c */
	void (*mail)(struct zookeeper *zk);      /* calls.c: the names in the mailbox have changed */
	void (*loaded)(struct zookeeper *zk);    /* load.c: all that was asked for has come */
};
extern const struct zk_up *zk_up;

/* ---- calls.c ---- */

/* A call that is under way. Exactly one of the functions is called, from the loop, unless the session was given up: then none.
 * Calls that cannot be made end the connection from the loop. `arg` is not the call's. */
struct zk_call {
	struct zookeeper *zk;
	struct zk_query *query;
	struct zk_node *node;
	struct zk_session *session;
	char *path; /* of what was called; not of a multi */
	void (*on_data)(struct zk_call *call, int rc, const char *data, int len, const struct Stat *stat);
	void (*on_acl)(struct zk_call *call, int rc, const struct ACL_vector *acl);
	void (*on_names)(struct zk_call *call, int rc, const struct String_vector *names, const struct Stat *stat);
	/* Of a multi: `at` is the operation that failed, -1: none is named. */
	void (*on_multi)(struct zk_call *call, int rc, int at, const struct Stat *stat);
	/* A multi's. */
	zoo_op_t *ops;
	zoo_op_result_t *results;
	struct Stat *stats;
	char **kept; /* what ops point at; freed with the call */
	int count, room;
	size_t bytes;
	int first_message; /* commit.c */
	enum zk_kind kind; /* of a list */
};
struct zk_call *zk_call(struct zookeeper *zk, struct zk_query *query);
void zk_call_free(struct zk_call *call);                /* of one that was not made */
void zk_get(struct zk_call *call, const char *path);    /* on_data */
void zk_exists(struct zk_call *call, const char *path); /* on_data, without data */
/* `watch`: zk_on_mail() is called once when the names change. */
void zk_names(struct zk_call *call, const char *path, bool watch);
void zk_get_acl(struct zk_call *call, const char *path); /* on_acl */
/* One more operation of a multi. The path and the value become the call's. */
void zk_op_check(struct zk_call *call, char *path, int32_t version);
void zk_op_set(struct zk_call *call, char *path, char *value, size_t len, int32_t version);
void zk_op_create(struct zk_call *call, char *path, char *value, size_t len, int flags);
void zk_op_delete(struct zk_call *call, char *path, int32_t version);
void zk_multi(struct zk_call *call);

/* ---- start.c ---- */

void zk_start(struct zookeeper *zk);
void zk_forget_acl(struct zookeeper *zk);
/* The root may have another one by now: with a second password, say, which takes the place of the first. */
void zk_look_at_acl(struct zookeeper *zk);
void zk_read_mail(struct zookeeper *zk);
void zk_remove_old_mail(struct zookeeper *zk);

/* ---- load.c ---- */

/* Asks for what the first query's run wants. True: that is put. False: zk_up->loaded() is called when more has come, and then this again. */
bool zk_load(struct zookeeper *zk);
/* Another host waits for this lock: looks at what its release will read, so that this takes one step. */
void zk_look_ahead(struct zookeeper *zk, const char *name);
/* A look that was not used. path NULL: all. */
void zk_forget_seen(struct zookeeper *zk, const char *path);
/* The node, if it was asked for. */
struct zk_node *zk_find(const struct zookeeper *zk, const struct zk_query *zq, enum zk_kind kind, const char *name);
/* Asks for a node, unless that was done. Ditto. */
void zk_need(struct zookeeper *zk, struct zk_query *zq, enum zk_kind kind, const char *name);

/* ---- commit.c ---- */

/* The rule has ended. True: what it wrote has to be committed, or what it read to be compared; false: its answer stands. */
bool zk_must_commit(const struct zk_query *zq);
/* zk_need() for each node that the commit needs. */
void zk_commit_needs(struct zookeeper *zk, struct zk_query *zq);
/* Sends it. `call` has on_multi. False: it is too large. */
bool zk_commit(struct zookeeper *zk, struct zk_query *zq, struct zk_call *call);

/* ---- clean.c ---- */

/* Removes some of the nodes of a kind (LOCK, HOST, MAILBOX, RULE, TEXT) that have had nothing for so long; of mailboxes, whose host has had
 * nothing. */
void zk_clean(struct zookeeper *zk, enum zk_kind kind, int64_t older_ms);
/* The connection has ended. */
void zk_clean_stop(struct zookeeper *zk);

#endif
