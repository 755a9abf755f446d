/* See posting.h. */
#include "keeper/leases/posting.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/ruleset.h"
#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "keeper/log.h"

/* "" where there is none, as in many containers: those have names of their own. */
static void posting_read_machine(char *out, size_t size)
{
	int fd = open("/etc/machine-id", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);

	if (fd >= 0)
		close(fd);
	out[n < 0 ? 0 : n] = '\0';
}

void posting_start(struct member *m)
{
	char machine[64], *all;

	posting_read_machine(machine, sizeof(machine));
	if (asprintf(&all, "%s\n%s\n%u\n%s", m->keeper->config->host, machine, (unsigned)geteuid(),
		     m->keeper->runtime_dir) < 0)
		all = NULL;
	ruleset_digest(all ? all : m->keeper->host, m->posting.place);
	free(all);
}

static void posting_on_sent(void *arg, const struct store_reply *reply)
{
	struct member *m = arg;
	bool refused = reply->status == STORE_ERROR || reply->status == STORE_LIMIT;

	if (refused && !m->posting.refused)
		log_event(LINE_RULES_NOT_SHARED, "other hosts cannot compare this host's rules with theirs: %s",
			  reply->status == STORE_LIMIT ? "the store has room for those of 10,000 keepers"
						       : reply->error);
	if (reply->status != STORE_UNREACHABLE)
		m->posting.refused = refused;
}

static void posting_on_rules(void *arg, const struct store_rules *rules, const char *error)
{
	struct member *m = arg;
	struct posting_compared *c = &m->posting.compared;

	m->posting.asking = false;
	if (!rules) {
		log_debug("how many hosts go by other rules is not known: %s", error ? error : "");
		return;
	}
	*c = (struct posting_compared){.same = rules->same, .different = rules->left_out, .unknown = rules->unknown};
	for (size_t i = 0; i < rules->count; i++)
		c->different += rules->sets[i].places;
	m->posting.compared_at = time(NULL);
}

void posting_compare(struct member *m)
{
	struct posting *p = &m->posting;
	char digest[RULESET_DIGEST_BYTES], *text;
	int64_t now = clock_now_ns();

	if (p->asking || m->shard || !store_is_up(m->store) ||
	    (p->asked_ns && now - p->asked_ns < POSTING_COMPARE_MS * NS_PER_MS) ||
	    !(text = ruleset_text(m->keeper->config)))
		return;
	ruleset_digest(text, digest);
	free(text);
	p->asking = true;
	p->asked_ns = now;
	store_read_rules(m->store, p->place, digest, posting_on_rules, m);
}

void posting_send(struct member *m)
{
	char digest[RULESET_DIGEST_BYTES], *text;

	if (m->shard || !store_is_up(m->store) || !(text = ruleset_text(m->keeper->config)))
		return;
	ruleset_digest(text, digest);
	store_post_rules(m->store,
			 &(struct store_posting){.place = m->posting.place,
						 .digest = digest,
						 .text = strlen(text) < RULESET_BYTES ? text : "",
						 .keep_ms = m->keeper->config->lease.sweep_ms},
			 posting_on_sent, m);
	free(text);
}
