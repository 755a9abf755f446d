/* The hosts' folders, made once per process: the files to lock, and a configuration, which never changes. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper/callers/configwatch.h"
#include "tests/sim/sim.h"

int64_t host_dead_ms(void)
{
	struct rng rng = rng_of("dead", 0);

	return faults_dropped('d', 0) || rng_chance(&rng, 500) ? 60000 : 86400000;
}

int64_t host_at_least_ms_of(const char *name)
{
	struct rng rng = rng_of("rest", 0);

	if (strcmp(name, "b") != 0 || faults_dropped('r', 0) || rng_chance(&rng, 600))
		return 0;
	return rng_between(&rng, 100, 3000);
}

unsigned host_shards(void)
{
	struct rng rng = rng_of("shards", 0);

	return faults_dropped('m', 0) || rng_chance(&rng, 700) ? 1 : SIM_SHARDS;
}

static void write_config(const struct host *host)
{
	FILE *f = fopen(host->config, "w");

	if (!f)
		sim_fail("%s: %s", host->config, strerror(errno));
	fprintf(f,
		"host = \"h%d\";\nstore = { server = \"unix:/simulated\"; shards = %u; connect_ms = 1000; };\n"
		"lease = { ttl_ms = %d; linger_ms = 200; pin_ms = 600; probe_ms = 200; store_wait_ms = 3000; fair_ms "
		"= 500;\n"
		"  freeze_margin_ms = 500; dead_ms = %lld; idle_ms = 0; past_look_ms = 0; };\nprotect = (\n",
		host->id, host_shards(), SIM_TTL_MS, (long long)host_dead_ms());
	for (int i = 0; i < SIM_FILES; i++)
		fprintf(f, "  { path = \"%s\"; name = \"%s\"; at_least_ms = %lld; }%s\n", host->files[i],
			program_file_name(i), (long long)host_at_least_ms_of(program_file_name(i)),
			i + 1 < SIM_FILES ? "," : ");");
	fclose(f);
}

const char *program_file_name(int file)
{
	static const char *const names[SIM_FILES] = {"a", "b", "a"};

	return names[file];
}

void hosts_prepare(const char *dir)
{
	for (int i = 0; i < SIM_HOSTS; i++) {
		struct host *host = &sim_hosts[i];

		host->id = i;
		snprintf(host->dir, sizeof(host->dir), "%.80s/h%d", dir, i);
		snprintf(host->run, sizeof(host->run), "%s/run", host->dir);
		snprintf(host->config, sizeof(host->config), "%s/conf", host->dir);
		mkdir(host->dir, 0700);
		mkdir(host->run, 0700);
		for (int f = 0; f < SIM_FILES; f++) {
			snprintf(host->files[f], sizeof(host->files[f]), "%s/f%d", host->dir, f);
			close(open(host->files[f], O_RDWR | O_CREAT | O_CLOEXEC, 0600));
		}
		write_config(host);
		host->dir_fd = open(host->run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (host->dir_fd < 0)
			sim_fail("%s: %s", host->run, strerror(errno));
	}
}

/* --- keeper/callers/configwatch.h --- */

int configwatch_start(struct keeper *k) { return 0; }
void configwatch_close(struct keeper *k) {}

void configwatch_wait(struct keeper *k, struct configwatch_wait *wait, bool contents, configwatch_cb *cb)
{
	sim_fail("a program has another configuration than %s, or somebody has said reload", k->config->path);
}

void configwatch_leave(struct configwatch_wait *wait) {}
