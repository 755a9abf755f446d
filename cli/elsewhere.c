#include "cli/elsewhere.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "cli/field.h"
#include "cli/show.h"

#define OLD_MS      (2 * 3600 * 1000) /* a keeper that runs has said by which rules it goes since then */
#define HOSTS_BYTES 512
#define RULE_BYTES  (PATH_MAX + 32)

static bool is_what(const json_t *difference, const char *what)
{
	return strcmp(field_text(difference, "what"), what) == 0;
}

/* "host web2-1a2b", "hosts web2-1a2b, web3-4c5d and 7 others", and since when, if that is long ago. */
static const char *elsewhere_hosts(const json_t *difference, char out[HOSTS_BYTES])
{
	const json_t *hosts = json_object_get(difference, "hosts"), *host;
	int64_t others = field_number(difference, "others"), age_ms = field_number(difference, "age_ms");
	size_t i, count = json_array_size(hosts), used = 0;
	char age[SHOW_TIME_BYTES];

	used += (size_t)snprintf(out, HOSTS_BYTES, "host%s", count + (size_t)others == 1 ? "" : "s");
	json_array_foreach (hosts, i, host)
		if (i < 3 && json_is_string(host))
			used += (size_t)snprintf(out + used, HOSTS_BYTES - used, "%s %.127s",
						 i == 0                    ? ""
						 : others || i + 1 < count ? ","
									   : " and",
						 json_string_value(host));
	if (others > 0)
		used += (size_t)snprintf(out + used, HOSTS_BYTES - used, " and %" PRId64 " other%s", others,
					 others == 1 ? "" : "s");
	if (age_ms > OLD_MS && used < HOSTS_BYTES)
		snprintf(out + used, HOSTS_BYTES - used, " (%s ago)", show_ms(age_ms, age));
	return out;
}

/* `tree /srv/app` as "app/..."; cut where it is very long. */
static const char *elsewhere_rule(const json_t *difference, const char *rule, const char *as, char out[RULE_BYTES])
{
	snprintf(out, RULE_BYTES, "%.2000s as \"%.1500s\"", field_text(difference, rule), field_text(difference, as));
	return out;
}

/* ---- dflock status ---- */

void elsewhere_print(const json_t *elsewhere, FILE *f)
{
	const json_t *list = json_object_get(elsewhere, "differences"), *difference;
	size_t i, renamed = 0, alone = 0;

	json_array_foreach (list, i, difference) {
		if (is_what(difference, "renamed"))
			renamed++;
		else
			alone++;
	}
	alone += (size_t)field_number(elsewhere, "left_out");
	if (renamed)
		fprintf(f,
			"\nNAMED DIFFERENTLY on other hosts: %zu rule%s; these locks do not exclude each other. "
			"`dflock doctor` shows them\n",
			renamed, renamed == 1 ? "" : "s");
	else if (alone)
		fprintf(f, "\nrules differ: of hosts that share lock names, not all protect the same; `dflock doctor` "
			   "shows what\n");
}

/* ---- dflock doctor ---- */

static void elsewhere_find(struct doctor *d, const json_t *difference)
{
	char hosts[HOSTS_BYTES], here[RULE_BYTES], there[RULE_BYTES];

	elsewhere_hosts(difference, hosts);
	elsewhere_rule(difference, "here", "here_as", here);
	elsewhere_rule(difference, "there", "there_as", there);
	if (is_what(difference, "renamed"))
		doctor_find(
			d, FINDING_WARNING,
			"named differently: %s here, and %s on %s: these locks do not exclude each other; give both "
			"rules the same `name`",
			here, there, hosts);
	else if (is_what(difference, "keyed"))
		doctor_find(
			d, FINDING_WARNING,
			"another redis_key: %s here, and %s on %s: Redis clients are excluded by some of these hosts "
			"only; give both rules the same `redis_key` and `redis_key_format`",
			here, there, hosts);
	else if (is_what(difference, "only_here"))
		doctor_find(
			d, FINDING_WARNING,
			"protected only here: %s, and nothing of that name on %s: if jobs there take this lock, add "
			"the rule there; is a path misspelt on one of the two?",
			here, hosts);
	else if (is_what(difference, "only_there"))
		doctor_find(d, FINDING_WARNING,
			    "not protected here: %s on %s, and nothing of that name here: if jobs here take this lock, "
			    "add the rule here; is a path misspelt on one of the two?",
			    there, hosts);
}

void elsewhere_doctor(struct doctor *d, const json_t *elsewhere)
{
	const json_t *list = json_object_get(elsewhere, "differences"), *difference;
	int64_t same = field_number(elsewhere, "same"), unknown = field_number(elsewhere, "unknown"),
		left_out = field_number(elsewhere, "left_out");
	size_t i;

	json_array_foreach (list, i, difference)
		elsewhere_find(d, difference);
	if (left_out > 0)
		doctor_find(d, FINDING_WARNING, "%" PRId64 " more rules differ between this host and others", left_out);
	if (*field_text(elsewhere, "error"))
		doctor_find(d, FINDING_WARNING, "the rules of other hosts cannot be compared with these: %s",
			    field_text(elsewhere, "error"));
	else if (same > 0 && !json_array_size(list))
		doctor_find(d, FINDING_OK, "%" PRId64 " other keeper%s %s and protect%s the same", same,
			    same == 1 ? "" : "s", same == 1 ? "names" : "name", same == 1 ? "s" : "");
	if (unknown > 0)
		doctor_find(d, FINDING_OK, "the rules of %" PRId64 " other keeper%s are not known", unknown,
			    unknown == 1 ? "" : "s");
}
