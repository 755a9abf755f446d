/* Sockets: programs' questions in, answers out. Loop only. */
#ifndef DFLOCK_KEEPER_SESSIONS_H
#define DFLOCK_KEEPER_SESSIONS_H

#include "keeper/keeper.h"

/* Makes RUNTIME_DIR/keeper.sock and listens. 0 or -errno. */
int sessions_start(struct keeper *k);
/* Closes the socket and every session. */
void sessions_stop(struct keeper *k);

/* A worker that looked for this session has ended; the last use frees it. */
void session_unuse(struct session *s);

/* Sends an answer. WIRE_WAITING leaves the session as it is; any other ends the question. fd: passed along, or -1. */
void session_reply(struct session *s, enum wire_verdict verdict, const char *reason, int fd);
void session_refuse(struct session *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Refused, since the file's mount has kept somebody waiting for ms. */
void session_slow(struct session *s, int ms);
/* What fronts tell of the sessions of other users. */
struct fronts_news;
extern const struct fronts_news session_fronts_news;
/* WIRE_WOULD_BLOCK; to WIRE_TEST with the lock in the way (NULL: not known more exactly than what was asked for). */
void session_would_block(struct session *s, const struct store_range *in_use);
/* WIRE_GRANTED, sure until until_ns of the keeper's clock. */
void session_grant(struct session *s, int64_t until_ns, uint64_t fence);

/* What the program has locked from this byte on: one lock at a time, since there may be more than a message has room for. */
void session_tell_before(struct session *s, int64_t from);
/* Tells a peer that gets no session. */
void reply_refused(int to, const char *why);

/* The process ends at once: ends all connections and the listening socket now, since a thread that waits for a file system that
 * does not answer would keep them open. */
void sessions_abandon(struct keeper *k);

#endif
