/*
 * The replicas' part in an answer. Of N nodes, the master included, an answer that binds (acquire, confirm, reclaim,
 * beat, and the incarnation record) counts only once floor(N/2) replicas have acknowledged it: WAIT, sent right behind
 * the script on the same connection. With fewer it is as if no answer had come: the store counts as unreachable, the
 * keeper asks again when it is reachable, and meanwhile nothing was granted or renewed.
 *
 * Why two masters never grant against each other. M is cut off but still feeds some replicas, R was promoted. R has
 * another replication id, so its first keepers begin another incarnation, and it grants nothing until a keeper
 * has seen the record of that acknowledged and then watched it for one ttl. Call that acknowledgement t.
 *
 *  - An answer of M that counted was acknowledged by a majority of the nodes, and so was R's record: they have a
 *    node in common, which followed M first and R afterwards. So M executed whatever counted before t, and it was sent
 *    before t: a deadline that comes from M ends before t + ttl (keeper/leases/host.h: nine tenths of a ttl from sending).
 *  - R grants new leases from t + ttl on. Before, it only takes back leases whose deadline has not passed. Those fit
 * each other, and what M still grants, too: if M gave a lease to somebody else, then because its holder had been silent
 *    for a ttl, before t (it counted), and then its holder's deadline had passed before R could be asked.
 *  - Beats alone are not enough: M, which hears nothing of a host that has gone over to R, gives its leases to others
 *    after a ttl of silence, while the deadlines of these may still be good. So grants must be acknowledged as well.
 *
 * A lease that came by hand-over was granted inside somebody else's script, which nobody waited for: its host asks for
 * it with its token once more before it uses it, and that answer counts like any other. release and shrink themselves
 * only give something up, which needs nobody's consent. sweep and open do what only matters through what is granted
 * afterwards.
 *
 * It rests on N being what it is: a master with more replicas than configured is refused, at the connection and
 * whenever it shows later (connect_check()). It does not cover a replica that is turned back from R to M by hand. It
 * does not need the node in common to keep what it acknowledged: only the order in which it followed the two counts, so
 * replicas need not save anything.
 *
 * WAIT speaks of the connection's last write (Redis 7.2) or of everything before (older ones). Therefore each of these
 * scripts writes something wherever its answer binds, also when there is nothing to change.
 *
 * WAIT holds up the connection that it came on. So there is one at a time: what is sent meanwhile is executed when it
 * is over, and one more WAIT behind all of that speaks of all of it. Else a thousand leases that are confirmed at once
 * would take a thousand round trips to the replicas, and the last of them longer than connect_ms.
 */
#include "store/internal.h"

#include <stdio.h>

static void on_acks(void *arg, const redisReply *reply);

void acks_init(struct store *s)
{
	s->covered.last = &s->covered.first;
	s->behind.last = &s->behind.first;
}

/* Below the limit of the link: the answer then says how many they were. */
static int64_t limit_ms(const struct store *s)
{
	return s->config->connect_ms - s->config->connect_ms / 4;
}

/* Asks for all that was sent and not asked for. */
static void ask(struct store *s)
{
	char count[16], limit[24];

	s->asking = true;
	s->covered = s->behind;
	s->behind.first = NULL;
	s->behind.last = &s->behind.first;
	snprintf(count, sizeof(count), "%d", config_acknowledgements(s->config));
	snprintf(limit, sizeof(limit), "%lld", (long long)limit_ms(s));
	/* The scripts have gone out, so that only memory can be missing, and their answers would be waited for for
	 * ever. */
	if (link_send(s->commands, 3, (const char *const[]){"WAIT", count, limit}, on_acks, s) != 0)
		store_need(NULL);
}

void acks_await(struct request *r)
{
	struct store *s = r->store;

	r->next = NULL;
	*s->behind.last = r;
	s->behind.last = &r->next;
	if (!s->asking)
		ask(s);
}

static bool forget(struct request_list *list, const struct request *r)
{
	struct request **at = &list->first;

	while (*at && *at != r)
		at = &(*at)->next;
	if (!*at)
		return false;
	if (list->last == &r->next)
		list->last = at;
	*at = r->next;
	return true;
}

void acks_forget(struct request *r)
{
	struct store *s = r->store;

	if (!forget(&s->covered, r))
		forget(&s->behind, r);
}

/* False: it called store_down(). */
static bool are_enough(struct store *s, const redisReply *reply)
{
	int needed = config_acknowledgements(s->config);
	char line[REPLY_LINE_BYTES];

	if (reply->type == REDIS_REPLY_ERROR) {
		reply_explain(reply->str, line);
		store_down(s, "%s", line);
	} else if (reply->type != REDIS_REPLY_INTEGER) {
		store_down(s, "WAIT was answered with something else: it is no Redis");
	} else if (reply->integer < needed) {
		store_down(s,
			   "%lld of the %d replicas that must have acknowledged within %lld ms (replicas = %d): it may "
			   "be cut off from them, or they are down",
			   reply->integer, needed, (long long)limit_ms(s), s->config->replicas);
	} else {
		return true;
	}
	return false;
}

/* The replies to all that it covers have come: the server answers in order. reply NULL: the link is being closed, and
 * what had no reply was forgotten. */
static void on_acks(void *arg, const redisReply *reply)
{
	struct store *s = arg;
	struct request *r = s->covered.first, *next;

	s->asking = false;
	s->covered.first = NULL;
	bool enough = reply && are_enough(s, reply);
	if (enough && s->behind.first)
		ask(s);
	for (; r; r = next) {
		next = r->next;
		request_acknowledged(r, enough);
	}
}
