/*
 * The rules of a host as text. Hosts put it into the store, so that people learn what two hosts name or protect
 * differently (differ.h, keeper/leases/posting.h); no lease depends on it. Pure, but for malloc().
 *
 * The text: the line "2", then one line for each rule, in their order, of five words with tabs between them: "path", "glob" or
 * "tree"; the length of the fixed part; the resolved pattern; the name; and the redis_key with its format, or nothing. A sixth is the name
 * of the rule's store; it is left out for the default one, since keepers of versions without stores know no sixth.
 */
#ifndef DFLOCK_CONFIG_RULESET_H
#define DFLOCK_CONFIG_RULESET_H

#include <stddef.h>

#include "config/config.h"

#define RULESET_BYTES        16384 /* a longer text is not compared */
#define RULESET_DIGEST_BYTES 17    /* 16 hex digits and NUL */

/* The caller frees it. NULL: no memory left. */
char *ruleset_text(const struct config *config);
/* Texts with the same digest are the same, unless somebody has searched for two that are not. */
void ruleset_digest(const char *text, char digest[RULESET_DIGEST_BYTES]);
/* From a text, whatever its bytes are, to a configuration that has rules, the names of their stores, and nothing else; config_free() ends it.
 * 0; -EINVAL: it is no such text, or too long; -ENOMEM. */
int ruleset_parse(const char *text, size_t len, struct config **out);

#endif
