/* store/zookeeper/: what engine_calls.h compares (make calls-zookeeper), with one server. The engine's clock is told. */
#define SERVERS 1
#include "tests/unit/random_calls.h"
/* Not in front of it: it has other things by these names. */
#include "tests/unit/zookeeper_server.h"

#include "tests/unit/engine_calls.h"

/* The linker has the engine call this instead of zk_now_us(). */
int64_t __wrap_zk_now_us(const struct zookeeper *zk);
int64_t __wrap_zk_now_us(const struct zookeeper *zk) { return told_us; }

static char content[1000000];
static int content_len;
static void on_content(int rc, const char *value, int len, const struct Stat *stat, const void *arg)
{
	content_len = rc == ZOK && len > 0 && len < (int)sizeof(content) ? len : 0;
	if (content_len)
		memcpy(content, value, (size_t)len);
	other_on_void(rc, arg);
}

/* What the node has under this tag; "". */
static const char *tag_of(enum zk_kind kind, const char *name, const char *tag)
{
	static char value[128];
	char *node = zk_path(path, kind, name);
	struct zk_reader r;

	*value = '\0';
	other_call(zoo_aget(other, node, 0, on_content, NULL));
	free(node);
	for (bool good = zk_read_begin(&r, content, content_len); good && zk_read(&r) > 0;)
		if (strcmp(r.tag, tag) == 0)
			snprintf(value, sizeof(value), "%.*s", (int)r.len, r.value);
	return value;
}

static void make_node(const char *below)
{
	ck_assert_int_eq(
		other_call(zoo_acreate(other, at(below), "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, other_on_string, NULL)), ZOK);
}

static void set_record(int len)
{
	ck_assert_int_eq(other_call(zoo_aset(other, at("/store"), content, len, -1, other_on_stat, NULL)), ZOK);
}

static void engine_begin(void)
{
	static const char *const folders[] = {"/locks", "/names", "/hosts", "/rules", "/texts"};
	char box[64];

	for (int i = 0; i < ROWS(folders); i++) {
		other_remove(at(folders[i]));
		make_node(folders[i]);
	}
	for (int i = 0; i < HOSTS; i++) {
		snprintf(box, sizeof(box), "/messages/%s", random_hosts[i]);
		make_node(box);
	}
	set_record(sprintf(content, "dflock 1\nmemory 2\na0\n"));
}

static void engine_end(void) {}
static void engine_tell_time(void) {}

static void engine_identity(char identity[sizeof(told_identity)])
{
	snprintf(identity, sizeof(told_identity), "%s", tag_of(ZK_STORE, NULL, "memory"));
}

/* The record stays, with another memory. */
static void engine_forget(void)
{
	static const char memory[] = "\nmemory 2\na";
	char *digit;

	tag_of(ZK_STORE, NULL, "memory");
	content[content_len] = '\0';
	digit = strstr(content, memory) + strlen(memory);
	*digit = (char)(*digit == '9' ? '0' : *digit + 1);
	set_record(content_len);
}

/* Fences are each name's own. */
static int64_t engine_fence(const char *name)
{
	int64_t record, own;

	record = strtoll(tag_of(ZK_STORE, NULL, "fence"), NULL, 10);
	own = name ? strtoll(tag_of(ZK_LOCK, name, "fence"), NULL, 10) : 0;
	return record > own ? record : own;
}

static int by_number(const void *x, const void *y)
{
	return strcmp(strrchr(*(char *const *)x, '~'), strrchr(*(char *const *)y, '~'));
}

/* Of one host after the other. */
static void engine_listen(char *text)
{
	char box[64], mail[4096];

	for (int host = 0; host < HOSTS; host++) {
		snprintf(box, sizeof(box), "/messages/%s", random_hosts[host]);
		other_call(zoo_aget_children(other, at(box), 0, other_on_names, NULL));
		qsort(other_names, (size_t)other_count, sizeof(*other_names), by_number);
		for (int i = 0; i < other_count; i++) {
			snprintf(mail, sizeof(mail), "%s%s/%s", path, box, other_names[i]);
			other_call(zoo_adelete(other, mail, -1, other_on_void, NULL));
			*strrchr(other_names[i], '~') = '\0';
			char *words = zk_decode(other_names[i]);
			sprintf(text + strlen(text), " ( dflock:{0}:host:%s %s )", random_hosts[host], words);
			free(words);
		}
	}
}

static void hears_elsewhere(char *text)
{
	static char sorted[TEXT_BYTES];
	char *said = strstr(text, " | (") ? strstr(text, " | (") + 2 : text + strlen(text), beginning[64], *end;

	*sorted = '\0';
	for (int host = 0; host < HOSTS; host++) {
		snprintf(beginning, sizeof(beginning), " ( dflock:{0}:host:%s ", random_hosts[host]);
		for (char *at_one = said; *at_one; at_one = end) {
			end = strstr(at_one, " )") + 2;
			if (strncmp(at_one, beginning, strlen(beginning)) == 0)
				strncat(sorted, at_one, (size_t)(end - at_one));
		}
	}
	ck_assert_uint_eq(strlen(sorted), strlen(said));
	strcpy(said, sorted);
}
