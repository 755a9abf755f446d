/*
 * May a configuration take another one's place by itself?
 *
 * Only if no file loses its protection or changes its lock name, and this must be certain: a wrong "no" costs a
 * `dflock reload`, a wrong "yes" lets two hosts run. So the rules alone decide, and never what files exist.
 *
 * Let p be a path that the old list protects, and o the first old rule that matches it. The new list must give p the
 * same name, in the same store: one name in two stores is two locks. It does if
 *
 *   1. the old rules are in the new list, with the same kind, pattern, name and store, in their order, and
 *   2. for each rule m that is new and each old rule o behind it: no path matches both m and o, or every path that
 *      matches both gets the same name and store from both.
 *
 * Proof: the first rule of the new list that matches p is o, or some new m before it, since no old rule before o matches
 * p. By 2, m gives it o's name and store.
 *
 * What a rule does for a lost lease (on_lost), against holders that cannot be stopped (unstoppable), against a second
 * lock soon after the first (at_least_ms), against Redis clients (redis_key), and against programs that go on when they are
 * refused (on_refused), counts like the name: none of them may become weaker. Another number in at_least_ms is not weaker; none is. Nothing but "busy" keeps a
 * program from going on without a lock. A kill_after_ms that is new or shorter may end a job that runs now: an operator
 * must want that.
 *
 * This code finds 2 out only in these cases:
 *   - one of the rules is for a single path: the matcher says whether the other one matches it;
 *   - neither fixed directory is in the other: trees and globs match nothing outside of theirs, so no path matches
 *     both;
 *   - one fixed directory is in the other: a lock name is the rule's name and then the path behind the fixed directory.
 *     So both rules give the same names if the outer rule's name, followed by the rest of the inner directory, is the
 *     inner rule's name, and their stores are the same.
 *
 * In every other case an operator must decide.
 */
#include "config/internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The keeper's loop waits for these comparisons, so there are no more than this. */
#define COMPARE_MAX 1000000

static bool same_rule(const struct rule *a, const struct rule *b)
{
	return a->kind == b->kind && a->fixed_len == b->fixed_len && strcmp(a->pattern, b->pattern) == 0 &&
	       strcmp(a->name, b->name) == 0 && a->store == b->store;
}

/* Is `path` the directory `dir`, or below it? The root is "". */
static bool is_in_directory(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return strncmp(path, dir, len) == 0 && (path[len] == '/' || !path[len]);
}

/* Does `rule` do less than the other one for a lost lease, against a holder that cannot be stopped, or against a second
 * lock soon after the first, or against Redis clients, or against a program that goes on when it is refused? */
static bool is_weaker(const struct rule *rule, const struct rule *than)
{
	return (rule->on_lost == ON_LOST_WARN && than->on_lost != ON_LOST_WARN) ||
	       (than->refuse_unstoppable && !rule->refuse_unstoppable) || (than->at_least_ms && !rule->at_least_ms) ||
	       (than->on_refused == WIRE_ON_REFUSED_BUSY && rule->on_refused != WIRE_ON_REFUSED_BUSY) ||
	       (than->redis_key && (!rule->redis_key || strcmp(rule->redis_key, than->redis_key) != 0));
}

static bool ends_sooner(const struct rule *rule, const struct rule *than)
{
	return rule->kill_after_ms && (!than->kill_after_ms || rule->kill_after_ms < than->kill_after_ms);
}

/* The fixed directory of `in` is that of `out` followed by `rest`. Do both give its files the same names? */
static bool names_alike(const struct rule *out, const struct rule *in, const char *rest)
{
	size_t len = strlen(out->name);

	return in->store == out->store && strncmp(in->name, out->name, len) == 0 && strcmp(in->name + len, rest) == 0;
}

/* Point 2 above: no path matches both rules, or `before` gives such paths the same names, and does no less for them. */
static bool rules_agree(const struct rule *before, const struct rule *rule)
{
	char first[PATH_MAX], second[PATH_MAX];

	if (before->kind == PAGE_RULE_PATH && !page_rule_matches(rule->kind, rule->pattern, before->pattern))
		return true;
	if (rule->kind == PAGE_RULE_PATH && !page_rule_matches(before->kind, before->pattern, rule->pattern))
		return true;
	rules_fixed_path(before, first);
	rules_fixed_path(rule, second);
	if (is_in_directory(second, first))
		return names_alike(before, rule, second + strlen(first)) && !is_weaker(before, rule) &&
		       !ends_sooner(before, rule);
	if (is_in_directory(first, second))
		return names_alike(rule, before, first + strlen(second)) && !is_weaker(before, rule) &&
		       !ends_sooner(before, rule);
	return true;
}

static const char *rule_word(const struct rule *rule)
{
	return rule->kind == PAGE_RULE_TREE ? "tree" : "path";
}

/* Point 1 above; and no old rule is weaker, or ends holders sooner. */
static bool has_all(const struct config *old, const struct config *fresh, char *why, size_t why_size)
{
	size_t at = 0;

	for (const struct rule *rule = old->rules; rule < old->rules + old->rule_count; rule++, at++) {
		while (at < fresh->rule_count && !same_rule(&fresh->rules[at], rule))
			at++;
		if (at >= fresh->rule_count)
			snprintf(why, why_size,
				 "%s \"%.200s\" is not protected as \"%.100s\"%s any more, or its rule was moved",
				 rule_word(rule), rule->pattern, rule->name,
				 fresh->store_count > 1 ? " in its store" : "");
		else if (is_weaker(&fresh->rules[at], rule))
			snprintf(why, why_size,
				 "%s \"%.200s\" (line %d) would have on_lost = \"warn\", unstoppable = \"warn\", no "
				 "at_least_ms, no on_refused = \"busy\", or another redis_key or none",
				 rule_word(rule), rule->pattern, fresh->rules[at].line);
		else if (ends_sooner(&fresh->rules[at], rule))
			snprintf(
				why, why_size,
				"%s \"%.200s\" (line %d) has a kill_after_ms that is new or shorter, so holders could be "
				"ended at once",
				rule_word(rule), rule->pattern, fresh->rules[at].line);
		else
			continue;
		return false;
	}
	return true;
}

static bool keeps_rules(const struct config *old, const struct config *fresh, char *why, size_t why_size)
{
	size_t next = 0; /* of the old rules */

	if (!has_all(old, fresh, why, why_size))
		return false;
	if (old->rule_count && fresh->rule_count - old->rule_count > COMPARE_MAX / old->rule_count) {
		snprintf(why, why_size, "it has too many new rules to tell whether every file keeps its name");
		return false;
	}
	for (const struct rule *rule = fresh->rules; next < old->rule_count; rule++) {
		if (same_rule(rule, &old->rules[next])) {
			next++;
			continue;
		}
		for (size_t i = next; i < old->rule_count; i++) {
			if (rules_agree(rule, &old->rules[i]))
				continue;
			snprintf(
				why, why_size,
				"%s \"%.200s\" (line %d) now stands before %s \"%.200s\" and may name its files anew, or do "
				"less for them",
				rule_word(rule), rule->pattern, rule->line, rule_word(&old->rules[i]),
				old->rules[i].pattern);
			return false;
		}
	}
	return true;
}

bool config_follows(const struct config *old, const struct config *fresh, char *why, size_t why_size)
{
	/* An editor that writes in place makes the file empty first. */
	if (!fresh->has_store && !fresh->has_protect && (old->has_store || old->has_protect)) {
		snprintf(why, why_size, "it has neither store nor protect");
		return false;
	}
	/* Rules say their store by its index. */
	for (size_t i = 0; i < old->store_count; i++)
		if (i >= fresh->store_count || strcmp(old->stores[i].name, fresh->stores[i].name) != 0) {
			snprintf(why, why_size, "stores.%s is not in it, or not where it was", old->stores[i].name);
			return false;
		}
	if (fresh->lease.on_lost == ON_LOST_WARN && old->lease.on_lost != ON_LOST_WARN) {
		snprintf(why, why_size, "on_lost = \"warn\" would have holders go on without their lease");
		return false;
	}
	return keeps_rules(old, fresh, why, why_size);
}

/* --- what cannot change while leases are held: where they are recorded, and for how long they stand --- */

/* All but the passwords, which say who may connect, and not where. The caller frees it; NULL: no memory left. */
static char *follow_server_text(const struct config_store *c)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	fprintf(f, "%s %s %s %s %s %d %d %s %s %d %s %d %u %d %d %s %s %s %s %lld", c->name, c->postgresql,
		c->zookeeper, c->socket, c->address.host, c->address.port, c->cluster, c->master, c->sentinel_user,
		c->replicas, c->user, c->database, c->shards, c->tls.on, c->tls.only_server, c->tls.ca,
		c->tls.certificate, c->tls.key, c->tls.server_name, (long long)c->connect_ms);
	for (size_t i = 0; i < c->sentinel_count; i++)
		fprintf(f, " %s:%d", c->sentinels[i].host, c->sentinels[i].port);
	fclose(f);
	return text;
}

static bool same_server(const struct config_store *a, const struct config_store *b)
{
	char *one = follow_server_text(a), *other = follow_server_text(b);
	bool same = one && other && strcmp(one, other) == 0;

	free(one);
	free(other);
	return same;
}

bool config_same_store(const struct config *a, const struct config *b)
{
	bool same = a->store_count == b->store_count;

	for (size_t i = 0; same && i < a->store_count; i++)
		same = same_server(&a->stores[i], &b->stores[i]);
	return same && a->lease.ttl_ms == b->lease.ttl_ms && a->lease.sweep_ms == b->lease.sweep_ms &&
	       stores_same_text(a->host, b->host);
}

static void swap_texts(char **a, char **b)
{
	char *text = *a;

	*a = *b;
	*b = text;
}

void config_swap_passwords(struct config *a, struct config *b)
{
	for (size_t i = 0; i < a->store_count; i++) {
		swap_texts(&a->stores[i].password, &b->stores[i].password);
		swap_texts(&a->stores[i].sentinel_password, &b->stores[i].sentinel_password);
	}
}
