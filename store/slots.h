/*
 * Where in a Redis Cluster the store is: the answer to CLUSTER SLOTS. Pure.
 *
 * All keys of dflock have the hash tag {0}, so they are in one slot, and one master of the cluster is the store. Messages go
 * to all nodes, and a host subscribes where it asks.
 *
 * Why no lock has a second holder while the slot changes its master from S to D. The record (STORE_KEYS "store") is a key like
 * the others, and every script whose answer binds reads it and compares the incarnation, which has the replication id of the
 * server in it.
 *
 *  - The slot moves to another part of the cluster. D does not serve it before it is made its owner, because dflock never
 *    sends ASKING: it answers MOVED. The keys move first, one at a time. MIGRATE holds up S from the moment at which it
 *    copies a key until that has arrived and S has deleted its own, so no script of S runs with a key that is at D already.
 *    (If the answer of D is lost, both have the key, and S goes on with its own until MIGRATE is repeated.)
 *    Once the record has left S, S answers nothing that binds: ASK, TRYAGAIN or MOVED. Let t be this moment. An answer of S
 *    that counted belongs to a question that was sent before t, so the deadlines that come from S end before t + ttl
 *    (keeper/leases/host.h: nine tenths of a ttl from sending). D becomes the owner after t, has another replication id than
 *    the record says, and so the first keeper that reaches D begins another incarnation: D grants nothing new until a keeper
 *    has watched that for one ttl, which is after t + ttl.
 *  - Before t, some keys are here and some there. A script that needs one that has gone, or one that does not exist, is
 *    answered ASK or TRYAGAIN; one that finds a key by itself (store/lua/store.lua, put_back) ends with an error before it
 *    has written. Others, as beats, still count, and that does no harm: they speak of the same record. A keeper that meets such
 *    an answer takes the store for away, and connects again only to a server that has the whole slot (steps.c), so that no
 *    host goes to and fro while the slot moves. What moves for longer than ttl_ms - freeze_margin_ms freezes holders.
 *  - A replica of S is promoted, by itself or by an operator. This is the case of acks.c: the replicas of S are those that
 *    `replicas` counts, and the promoted one has a new replication id. So `replicas` must be in the configuration, and a
 *    master with more of them is refused, also where it is 0.
 *
 * Not covered, as a replica that an operator turns back by hand is not in acks.c: a slot that is given to D while S is its
 * owner and still has its keys (CLUSTER SETSLOT NODE without MIGRATE, redis-cli --cluster fix), if S is cut off from D or
 * hangs; and a replica that the cluster takes from another part of it in place of one that failed, which
 * cluster-allow-replica-migration no prevents: it has not followed the old master, so two majorities need not have a node in
 * common.
 */
#ifndef DFLOCK_STORE_SLOTS_H
#define DFLOCK_STORE_SLOTS_H

#include <hiredis.h>
#include <stdbool.h>
#include <stddef.h>

#define STORE_SLOT 13907 /* of the hash tag {0}: CRC16("0") modulo 16384 */

enum slots_verdict {
	SLOTS_FOUND,
	SLOTS_NOBODY,   /* no node has the slot */
	SLOTS_NONSENSE, /* this is no answer of a Redis Cluster */
};

/*
 * The address of the slot's master. A node that does not know its own address, or was told to leave it out
 * (cluster-preferred-endpoint-type unknown-endpoint), leaves the host empty: then it is `asked`, the host that was asked.
 */
enum slots_verdict slots_master(const redisReply *reply, const char *asked, char *host, size_t size, int *port);

#endif
