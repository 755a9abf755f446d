/*
 * Any bytes as a configuration: either it is read and can be asked, or there is one line that says why not.
 * Built by clang -fsanitize=fuzzer,address,undefined with wire/ and config/; config/dflock.conf is a good seed.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "config/config.h"
#include "tests/fuzz/fuzz.h"

const char *__lsan_default_suppressions(void);

/* libconfig 1.5 loses the string that it was reading when it finds a syntax error. */
const char *__lsan_default_suppressions(void) { return "leak:libconfig.so\n"; }

static void ask(const struct config *config)
{
	char name[LOCK_NAME_BYTES];

	check(config->path[0] == '/' && *config->host, "half a configuration");
	for (size_t i = 0; i < config->store_count; i++) {
		const struct config_store *store = &config->stores[i];

		check(!store->address.host + !store->socket + !store->sentinel_count + !config_engine(store) == 3,
		      "no server, or two");
		check(!*store->name == !i && strlen(store->name) < CONFIG_STORE_BYTES, "a bad store");
	}
	for (size_t i = 0; i < config->rule_count; i++) {
		const struct rule *rule = &config->rules[i];

		check(rule->pattern[0] == '/' && strlen(rule->name) < LOCK_NAME_BYTES &&
			      rule->store < config->store_count,
		      "a bad rule");
		/* A file that is called as the pattern is; with room at its end for what a tree lacks. */
		if (config_lock_name(config, rule->pattern, name) == 0)
			check(strnlen(name, sizeof(name)) < sizeof(name), "a lock name without end");
		if (rule->kind == PAGE_RULE_PATH)
			check(page_rule_matches(rule->kind, rule->pattern, rule->pattern), "a path that is not itself");
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config *config = NULL;
	char path[64], why[PAGE_MESSAGE_BYTES] = "";
	int fd = memfd_create("config", MFD_CLOEXEC);

	check(fd >= 0 && write(fd, data, size) == (ssize_t)size, "no memory file");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (config_load(path, &config, why, sizeof(why)) == 0)
		ask(config);
	else
		check(!config && strncmp(why, path, strlen(path)) == 0 && !strchr(why, '\n'), why);
	config_free(config);
	close(fd);
	return 0;
}
