/*
 * The replicas' part in an answer. Of N nodes, the master included, an answer that binds (acquire, confirm, reclaim,
 * beat, and the incarnation record) counts only once floor(N/2) replicas have acknowledged it: WAIT is sent right
 * behind the script on the same connection. With fewer acknowledgements the keeper acts as if no answer had come: the
 * store counts as unreachable, the keeper asks again when it is reachable, and meanwhile nothing was granted or
 * renewed.
 *
 * Why two masters never grant against each other. M is cut off but still feeds some replicas; R was promoted. R has
 * another replication id, so the first keepers that reach R begin another incarnation. R grants nothing until a keeper
 * has seen that record acknowledged and has then watched it for one ttl. Let t be the time of that acknowledgement.
 *
 *  - An answer of M that counted was acknowledged by a majority of the nodes, and so was R's record. The two majorities
 *    have a node in common, which followed M first and R afterwards. So M executed every script whose answer counted
 *    before t, and that script was sent before t: a deadline that comes from M ends before t + ttl
 *    (keeper/leases/host.h: nine tenths of a ttl from sending).
 *  - R grants new leases from t + ttl on. Before that it only takes back leases whose deadline has not passed. Those
 *    agree with each other, and with what M still grants: if M gave a lease to another host, then only because its
 *    holder had been silent for a ttl before t (that grant counted), and then the holder's deadline had passed before
 *    R could be asked.
 *  - Acknowledged beats alone are not enough. M hears nothing of a host that has gone over to R, so M gives that host's
 *    leases to others after a ttl of silence, while the deadlines of these leases may still be good. So grants must be
 *    acknowledged as well.
 *
 * A lease that came by hand-over was granted inside another host's script, behind which there was no WAIT. So the new
 * holder asks for the lease once more with its token before it uses it, and that answer counts like any other. release
 * and shrink only give something up, which needs no acknowledgement. What sweep and open change matters only through
 * later grants, which are acknowledged themselves.
 *
 * The argument rests on N being true: a master with more replicas than configured is refused, at the connection and
 * whenever the additional replica shows later (connect_check()). It does not cover a replica that an operator turns
 * back from R to M by hand. The node in common need not keep what it acknowledged: only the order in which it followed
 * the two masters counts, so replicas need not save anything to disk.
 *
 * WAIT speaks of the connection's last write (Redis 7.2) or of all writes before it (older versions). Therefore each of
 * these scripts writes something wherever its answer binds, also when there is nothing to change.
 *
 * WAIT blocks the connection that it came on. So there is one WAIT at a time: scripts that are sent meanwhile are
 * executed when it is over, and one more WAIT behind all of them covers all of them. Otherwise a thousand leases that
 * are confirmed at once would take a thousand round trips to the replicas, the last of them longer than connect_ms.
 */
#include "store/redis/acks.h"

#include <stdio.h>

static void acks_clear(struct acks_list *list)
{
	list->first = NULL;
	list->last = &list->first;
}

void acks_init(struct acks *acks, const struct acks_events *events, void *arg)
{
	*acks = (struct acks){.events = events, .arg = arg};
	acks_clear(&acks->covered);
	acks_clear(&acks->behind);
}

int64_t acks_limit_ms(const struct config_store *config)
{
	return config->connect_ms - config->connect_ms / 4;
}

/* One WAIT for all that was sent and is not covered. */
static void acks_ask(struct acks *acks)
{
	acks->asking = true;
	acks->covered = acks->behind;
	acks_clear(&acks->behind);
	acks->events->ask(acks->arg);
}

void acks_await(struct acks *acks, struct acks_entry *entry)
{
	entry->next = NULL;
	*acks->behind.last = entry;
	acks->behind.last = &entry->next;
	if (!acks->asking)
		acks_ask(acks);
}

static bool acks_remove(struct acks_list *list, const struct acks_entry *entry)
{
	struct acks_entry **at = &list->first;

	while (*at && *at != entry)
		at = &(*at)->next;
	if (!*at)
		return false;
	if (list->last == &entry->next)
		list->last = at;
	*at = entry->next;
	return true;
}

void acks_forget(struct acks *acks, struct acks_entry *entry)
{
	if (!acks_remove(&acks->covered, entry))
		acks_remove(&acks->behind, entry);
}

void acks_answered(struct acks *acks, bool enough)
{
	struct acks_entry *entry = acks->covered.first, *next;

	acks->asking = false;
	acks->covered.first = NULL;
	if (enough && acks->behind.first)
		acks_ask(acks);
	for (; entry; entry = next) {
		next = entry->next;
		acks->events->acknowledged(entry, enough);
	}
}

bool acks_are_enough(const struct config_store *config, const redisReply *reply, char line[REPLY_LINE_BYTES])
{
	int needed = config_acknowledgements(config);

	if (reply->type == REDIS_REPLY_ERROR)
		reply_explain(reply->str, line);
	else if (reply->type != REDIS_REPLY_INTEGER)
		snprintf(line, REPLY_LINE_BYTES, "WAIT was answered with something else: it is no Redis");
	else if (reply->integer >= needed)
		return true;
	else
		snprintf(line, REPLY_LINE_BYTES,
			 "%lld of the %d replicas that must have acknowledged within %lld ms (replicas = %d): it may "
			 "be cut off from them, or they are down",
			 reply->integer, needed, (long long)acks_limit_ms(config), config->replicas);
	return false;
}
