/*
 * May a configuration take another one's place by itself?
 *
 * Only if no file loses its protection or changes its lock name, and this must be certain: a wrong "no" costs a
 * `dflock reload`, a wrong "yes" lets two hosts run. So the rules alone decide, and never what files exist.
 *
 * Let p be a path that the old list protects, and o the first old rule that matches it. The new list must give p the
 * same name. It does if
 *
 *   1. every old rule is in the new list, with the same kind, pattern and name, and
 *   2. for each rule m that stands before o in the new list and did not stand before o in the old list (m is new, or
 *      was moved): no path matches both m and o, or every path that matches both gets the same name from both.
 *
 * Proof: the first rule of the new list that matches p is o, or some m before it. An m that stood before o in the old
 * list does not match p, since o was the first rule that did. By 2, any other m that matches p gives it o's name.
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
 *     inner rule's name.
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

#define NEW_RULE SIZE_MAX

static bool same_rule(const struct rule *a, const struct rule *b)
{
	return a->kind == b->kind && a->fixed_len == b->fixed_len && strcmp(a->pattern, b->pattern) == 0 &&
	       strcmp(a->name, b->name) == 0;
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

	return strncmp(in->name, out->name, len) == 0 && strcmp(in->name + len, rest) == 0;
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

/* Where the rule is in the list, or NEW_RULE. Begins to look at `from`, since most lists stay in order. */
static size_t find_rule(const struct config *config, const struct rule *rule, size_t from)
{
	for (size_t i = 0; i < config->rule_count; i++) {
		size_t at = (from + i) % config->rule_count;

		if (same_rule(&config->rules[at], rule))
			return at;
	}
	return NEW_RULE;
}

static const char *rule_word(const struct rule *rule)
{
	return rule->kind == PAGE_RULE_TREE ? "tree" : "path";
}

/* Sets old_at[i] to the old rule that the i-th new one is, or NEW_RULE. False: an old rule is missing, or is weaker
 * now. */
static bool match_rules(const struct config *old, const struct config *fresh, size_t *old_at, char *why,
			size_t why_size)
{
	size_t next = 0;

	for (size_t i = 0; i < fresh->rule_count; i++)
		old_at[i] = NEW_RULE;
	for (size_t i = 0; i < old->rule_count; i++) {
		size_t at = find_rule(fresh, &old->rules[i], next);

		if (at == NEW_RULE) {
			snprintf(why, why_size, "%s \"%.200s\" is not protected as \"%.100s\" any more",
				 rule_word(&old->rules[i]), old->rules[i].pattern, old->rules[i].name);
			return false;
		}
		if (is_weaker(&fresh->rules[at], &old->rules[i])) {
			snprintf(why, why_size,
				 "%s \"%.200s\" (line %d) would have on_lost = \"warn\", unstoppable = \"warn\", no "
				 "at_least_ms, no on_refused = \"busy\", or another redis_key or none",
				 rule_word(&old->rules[i]), old->rules[i].pattern, fresh->rules[at].line);
			return false;
		}
		if (ends_sooner(&fresh->rules[at], &old->rules[i])) {
			snprintf(
				why, why_size,
				"%s \"%.200s\" (line %d) has a kill_after_ms that is new or shorter, so holders could be "
				"ended at once",
				rule_word(&old->rules[i]), old->rules[i].pattern, fresh->rules[at].line);
			return false;
		}
		old_at[at] = i;
		next = at + 1;
	}
	return true;
}

/* The j-th new rule is an old one. Does a rule before it perhaps take its files away? */
static bool is_shadowed(const struct config *fresh, const size_t *old_at, size_t j, char *why, size_t why_size)
{
	for (size_t i = 0; i < j; i++) {
		if (old_at[i] != NEW_RULE && old_at[i] < old_at[j])
			continue;
		if (rules_agree(&fresh->rules[i], &fresh->rules[j]))
			continue;
		snprintf(
			why, why_size,
			"%s \"%.200s\" (line %d) now stands before %s \"%.200s\" and may name its files anew, or do less for them",
			rule_word(&fresh->rules[i]), fresh->rules[i].pattern, fresh->rules[i].line,
			rule_word(&fresh->rules[j]), fresh->rules[j].pattern);
		return true;
	}
	return false;
}

/* The same rules, perhaps with more behind them: the usual change, which needs few comparisons. */
static bool is_beginning(const struct config *old, const struct config *fresh)
{
	size_t same = 0;

	while (same < old->rule_count && same < fresh->rule_count &&
	       same_rule(&old->rules[same], &fresh->rules[same]) &&
	       !is_weaker(&fresh->rules[same], &old->rules[same]) &&
	       !ends_sooner(&fresh->rules[same], &old->rules[same]))
		same++;
	return same == old->rule_count;
}

static bool keeps_rules(const struct config *old, const struct config *fresh, char *why, size_t why_size)
{
	size_t *old_at;
	bool keeps;

	if (is_beginning(old, fresh))
		return true;
	if (fresh->rule_count && old->rule_count > COMPARE_MAX / fresh->rule_count) {
		snprintf(why, why_size, "it has too many rules to tell whether every file keeps its name");
		return false;
	}
	old_at = calloc(fresh->rule_count + 1, sizeof(*old_at));
	if (!old_at) {
		snprintf(why, why_size, "there is no memory left to compare its rules");
		return false;
	}
	keeps = match_rules(old, fresh, old_at, why, why_size);
	for (size_t j = 0; j < fresh->rule_count && keeps; j++)
		keeps = old_at[j] == NEW_RULE || !is_shadowed(fresh, old_at, j, why, why_size);
	free(old_at);
	return keeps;
}

bool config_follows(const struct config *old, const struct config *fresh, char *why, size_t why_size)
{
	/* An editor that writes in place makes the file empty first. */
	if (!fresh->has_store && !fresh->has_protect && (old->has_store || old->has_protect)) {
		snprintf(why, why_size, "it has neither store nor protect");
		return false;
	}
	if (fresh->lease.on_lost == ON_LOST_WARN && old->lease.on_lost != ON_LOST_WARN) {
		snprintf(why, why_size, "on_lost = \"warn\" would have holders go on without their lease");
		return false;
	}
	return keeps_rules(old, fresh, why, why_size);
}

/* --- what cannot change while leases are held: where they are recorded, and for how long they stand --- */

static bool follow_same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_address(const struct config_address *a, const struct config_address *b)
{
	return follow_same_text(a->host, b->host) && a->port == b->port;
}

static bool same_sentinels(const struct config_store *a, const struct config_store *b)
{
	if (a->sentinel_count != b->sentinel_count || a->cluster != b->cluster)
		return false;
	for (size_t i = 0; i < a->sentinel_count; i++)
		if (!same_address(&a->sentinels[i], &b->sentinels[i]))
			return false;
	return follow_same_text(a->master, b->master) && follow_same_text(a->sentinel_user, b->sentinel_user) &&
	       follow_same_text(a->sentinel_password, b->sentinel_password);
}

static bool same_tls(const struct config_tls *a, const struct config_tls *b)
{
	return a->on == b->on && a->only_server == b->only_server && follow_same_text(a->ca, b->ca) &&
	       follow_same_text(a->certificate, b->certificate) && follow_same_text(a->key, b->key) &&
	       follow_same_text(a->server_name, b->server_name);
}

static bool same_server(const struct config_store *a, const struct config_store *b)
{
	return follow_same_text(a->socket, b->socket) && same_address(&a->address, &b->address) &&
	       same_sentinels(a, b) && a->replicas == b->replicas && follow_same_text(a->user, b->user) &&
	       follow_same_text(a->password, b->password) && same_tls(&a->tls, &b->tls) && a->database == b->database &&
	       a->connect_ms == b->connect_ms;
}

bool config_same_store(const struct config *a, const struct config *b)
{
	return same_server(&a->store, &b->store) && a->lease.ttl_ms == b->lease.ttl_ms &&
	       a->lease.sweep_ms == b->lease.sweep_ms && follow_same_text(a->host, b->host);
}
