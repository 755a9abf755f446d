#include "config/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#define DEFAULT_SERVER "127.0.0.1:6379"
#define DEFAULT_PORT   6379
#define SENTINEL_PORT  26379
#define PASSWORD_BYTES 4096
#define HOST_CHARS     "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"
#define V6_CHARS       "0123456789abcdefABCDEF:.%"

#define NAME_BYTES 253

#define PLAIN     "redis://"
#define ENCRYPTED "rediss://"

struct store_values {
	struct config_store store;
	const char *server, *password_file, *sentinel_password_file;
	config_setting_t *sentinels, *cluster;
	int64_t replicas, database, shards;
};

const struct setting_row config_store_rows[] = {
	{"postgresql", SETTING_STRING, offsetof(struct store_values, store.postgresql), .with = NULL},
	{"zookeeper", SETTING_STRING, offsetof(struct store_values, store.zookeeper), .with = NULL},
	{"server", SETTING_STRING, offsetof(struct store_values, server), .with = NULL},
	{"sentinels", SETTING_TEXTS, offsetof(struct store_values, sentinels), .with = NULL},
	{"cluster", SETTING_TEXTS, offsetof(struct store_values, cluster), .with = NULL},
	{"master", SETTING_STRING, offsetof(struct store_values, store.master), .with = "sentinels"},
	{"sentinel_user", SETTING_STRING, offsetof(struct store_values, store.sentinel_user),
	 .with = "sentinel_password_file"},
	{"sentinel_password_file", SETTING_PATH, offsetof(struct store_values, sentinel_password_file),
	 .with = "sentinels"},
	{"replicas", SETTING_NUMBER, offsetof(struct store_values, replicas), .min = 0, .max = CONFIG_MAX_REPLICAS},
	{"user", SETTING_STRING, offsetof(struct store_values, store.user), .with = "password_file"},
	{"password_file", SETTING_PATH, offsetof(struct store_values, password_file), .with = NULL},
	{"database", SETTING_NUMBER, offsetof(struct store_values, database), .min = 0, .max = 16383},
	{"shards", SETTING_NUMBER, offsetof(struct store_values, shards), .min = 1, .max = CONFIG_MAX_MEMBERS},
	{"tls_ca", SETTING_PATH, offsetof(struct store_values, store.tls.ca), .with = NULL},
	{"tls_certificate_file", SETTING_PATH, offsetof(struct store_values, store.tls.certificate),
	 .with = "tls_key_file"},
	{"tls_key_file", SETTING_PATH, offsetof(struct store_values, store.tls.key), .with = "tls_certificate_file"},
	{"tls_server_name", SETTING_STRING, offsetof(struct store_values, store.tls.server_name), .with = NULL},
	{"connect_ms", SETTING_NUMBER, offsetof(struct store_values, store.connect_ms), .min = 100, .max = 600000},
	{.name = NULL},
};

static bool is_name(const char *text, const char *chars)
{
	return *text && strlen(text) <= NAME_BYTES && !text[strspn(text, chars)];
}

/* The port of ":6379"; of "" the default; -1: the text is neither. */
static int port_of(const char *s, int default_port)
{
	long port;

	if (!*s)
		return default_port;
	if (*s++ != ':' || !*s || strlen(s) > 5 || s[strspn(s, "0123456789")])
		return -1;
	port = strtol(s, NULL, 10);
	return port >= 1 && port <= 65535 ? (int)port : -1;
}

/* What is wrong with a URL, of which an address can be the whole but for its scheme; or NULL with *text behind that. */
static const char *parse_scheme(const char **text, bool *tls)
{
	*tls = strncmp(*text, ENCRYPTED, strlen(ENCRYPTED)) == 0;
	if (*tls)
		*text += strlen(ENCRYPTED);
	else if (strncmp(*text, PLAIN, strlen(PLAIN)) == 0)
		*text += strlen(PLAIN);
	else
		return strstr(*text, "://") ? "it is no URL that begins with redis:// or rediss://" : NULL;
	if (strchr(*text, '@'))
		return "user and password_file are settings of their own";
	return strchr(*text, '/') ? "nothing may stand behind the port (database is a setting of its own)" : NULL;
}

/* What is wrong with the text; or NULL with the address set, whose host is NULL if memory is missing. */
static const char *parse_address(const char *text, int default_port, struct config_address *address, bool *tls)
{
	const char *wrong = parse_scheme(&text, tls), *rest;
	bool v6 = text[0] == '[';
	const char *host = text + v6;
	size_t len = strspn(host, v6 ? V6_CHARS : HOST_CHARS);

	if (wrong)
		return wrong;
	rest = host + len;
	if (!v6 && *rest == ':' && strchr(rest + 1, ':'))
		return "an IPv6 address needs brackets";
	if (len == 0 || len > 253)
		return "there is no host name of 1 to 253 letters, digits, '-', '.' and '_'";
	if (v6 && *rest++ != ']')
		return "there is no ']' after the address";
	address->port = port_of(rest, default_port);
	if (address->port < 0)
		return "the port is not a number from 1 to 65535";
	address->host = strndup(host, len);
	return NULL;
}

/* The same for a server's text, which may also be a socket's path. */
static const char *parse_server(const char *server, struct config_store *store)
{
	if (strncmp(server, "unix:", 5) != 0)
		return server[0] == '/' ? "a socket's path needs unix: before it"
					: parse_address(server, DEFAULT_PORT, &store->address, &store->tls.on);
	if (server[5] != '/')
		return "the socket's path is not absolute";
	if (strlen(server + 5) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return "the socket's path is longer than 107 bytes";
	store->socket = server + 5;
	return NULL;
}

/* Reads the first line of the file, which other users must not be able to read. `file` NULL: there is none. */
static int read_password(const struct config_reading *r, config_setting_t *group, const char *setting, const char *file,
			 char **password)
{
	int ret, line = settings_line(group, setting);
	const char *wrong = NULL;
	char *bytes = NULL;
	size_t len = 0;
	struct stat st;

	if (r->rules_only || !file)
		return 0;
	ret = load_file(AT_FDCWD, file, PASSWORD_BYTES, &bytes, &len, &st);
	if (ret == -EFBIG)
		wrong = "is larger than 4096 bytes; expected the password in its first line";
	else if (ret == -EINVAL)
		wrong = "is not a regular file; expected one with the password in its first line";
	else if (ret < 0) {
		reading_fail(r, line, "%s%s %.200s cannot be read: %s", r->store, setting, file, strerror(-ret));
		return ret == -EACCES ? ret : -EINVAL;
	} else if (load_is_exposed(&st))
		wrong = "can be read or written by everybody; run chmod o-rw on it";
	else if (memchr(bytes, '\0', len))
		wrong = "contains a NUL byte; expected text";
	else if (strcspn(bytes, "\n") == 0)
		wrong = "has an empty first line; expected the password there";
	if (wrong)
		ret = reading_fail(r, line, "%s%s %.200s %s", r->store, setting, file, wrong);
	else if (!(*password = strndup(bytes, strcspn(bytes, "\n"))))
		ret = reading_out_of_memory(r);
	if (bytes)
		explicit_bzero(bytes, len);
	free(bytes);
	return ret;
}

static int read_server(const struct config_reading *r, config_setting_t *group, const char *server,
		       struct config_store *store)
{
	const char *wrong = parse_server(server, store);

	if (wrong)
		return reading_fail(r, settings_line(group, "server"), "%sserver is \"%.100s\": %s; expected %s",
				    r->store, server, wrong,
				    "host:port, [IPv6 address]:port, rediss://... or unix:/path");
	return store->address.host || store->socket ? 0 : reading_out_of_memory(r);
}

bool server_is_listed(const struct config_store *store, const struct config_address *address)
{
	for (size_t i = 0; i < store->sentinel_count; i++)
		if (strcmp(store->sentinels[i].host, address->host) == 0 && store->sentinels[i].port == address->port)
			return true;
	return false;
}

/* `list`: "sentinels" or "cluster". */
static int read_sentinel(const struct config_reading *r, const char *list, config_setting_t *setting,
			 struct config_store *store)
{
	int line = config_setting_source_line(setting);
	const char *text = config_setting_get_string(setting), *wrong;
	struct config_address *address = &store->sentinels[store->sentinel_count];
	bool tls;

	wrong = parse_address(text, store->cluster ? DEFAULT_PORT : SENTINEL_PORT, address, &tls);
	if (wrong)
		return reading_fail(r, line, "%s%s contains \"%.100s\": %s; expected %s", r->store, list, text, wrong,
				    "host:port, [IPv6 address]:port or rediss://...");
	if (!address->host)
		return reading_out_of_memory(r);
	if (store->sentinel_count > 0 && tls != store->tls.on) {
		free(address->host);
		return reading_fail(r, line,
				    "%s%s contains \"%.100s\" beside one %s rediss://; expected TLS to all or none",
				    r->store, list, text, tls ? "without" : "with");
	}
	store->tls.on = tls;
	if (server_is_listed(store, address)) { /* a sentinel would have two votes */
		free(address->host);
		return reading_fail(r, line, "%s%s contains \"%.100s\" twice; expected each %s once", r->store, list,
				    text, store->cluster ? "node" : "sentinel");
	}
	store->sentinel_count++;
	return 0;
}

/* The list of those that know the server: sentinels, or nodes of a cluster. */
static int read_list(const struct config_reading *r, config_setting_t *group, const char *name,
		     config_setting_t *setting, const struct store_values *values, struct config_store *store)
{
	int count = config_setting_length(setting);

	if (values->server)
		return reading_fail(r, settings_line(group, "server"),
				    "%sserver is there beside %s%s, which know the server; expected one of them",
				    r->store, r->store, name);
	if (count > CONFIG_MAX_SENTINELS)
		return reading_fail(r, settings_line(group, name), "%s%s has %d; expected 1 to %d", r->store, name,
				    count, CONFIG_MAX_SENTINELS);
	for (int i = 0; i < count; i++) {
		int ret = read_sentinel(r, name, config_setting_get_elem(setting, (unsigned)i), store);

		if (ret < 0)
			return ret;
	}
	return 0;
}

/* Behind rediss://, the servers are reached by TLS, and the sentinels if their addresses say so. Returns the name. */
static const char *read_master(const char *text, struct config_tls *tls)
{
	size_t scheme = strlen(ENCRYPTED);

	if (strncmp(text, ENCRYPTED, scheme) != 0)
		return text;
	tls->only_server = !tls->on;
	tls->on = true;
	return text + scheme;
}

static int read_sentinels(const struct config_reading *r, config_setting_t *group, const struct store_values *values,
			  struct config_store *store)
{
	int ret = read_list(r, group, "sentinels", values->sentinels, values, store);
	const char *as_written = store->master;

	if (ret < 0)
		return ret;
	if (!as_written)
		return reading_fail(r, settings_line(group, "sentinels"),
				    "%smaster is missing; expected the name by which the sentinels know the master",
				    r->store);
	store->master = read_master(as_written, &store->tls);
	if (!is_name(store->master, HOST_CHARS))
		return reading_fail(r, settings_line(group, "master"),
				    "%smaster is \"%.100s\"; expected 1 to %d letters, digits, '-', '.' and '_', "
				    "perhaps behind rediss://",
				    r->store, as_written, NAME_BYTES);
	if (values->replicas < 1)
		return reading_fail(
			r, settings_line(group, "replicas"),
			"%sreplicas is %s; expected how many replicas the master has (1 to %d), so that a lock "
			"counts only once enough of them know of it",
			r->store, values->replicas < 0 ? "missing" : "0", CONFIG_MAX_REPLICAS);
	return 0;
}

static int read_cluster(const struct config_reading *r, config_setting_t *group, const struct store_values *values,
			struct config_store *store)
{
	if (values->sentinels)
		return reading_fail(r, settings_line(group, "cluster"),
				    "%scluster is there beside %ssentinels; expected one of them", r->store, r->store);
	store->cluster = true;
	int ret = read_list(r, group, "cluster", values->cluster, values, store);
	if (ret < 0)
		return ret;
	if (values->database)
		return reading_fail(r, settings_line(group, "database"),
				    "%sdatabase is there beside %scluster; expected none, a cluster has only 0",
				    r->store, r->store);
	if (values->replicas < 0)
		return reading_fail(
			r, settings_line(group, "cluster"),
			"%sreplicas is missing; expected how many replicas each master of the cluster has (0 to %d), "
			"so that a lock counts only once enough of them know of it",
			r->store, CONFIG_MAX_REPLICAS);
	return 0;
}

static int server_check_tls(const struct config_reading *r, config_setting_t *group, const struct config_tls *tls)
{
	/* What makes no sense without rediss:// was probably meant to be there. */
	for (const struct setting_row *row = config_store_rows; group && !tls->on && row->name; row++)
		if (strncmp(row->name, "tls_", 4) == 0 && config_setting_get_member(group, row->name))
			return reading_fail(r, settings_line(group, row->name),
					    "%s%s is there, and no server or sentinel is reached by TLS; expected "
					    "rediss:// before the address",
					    r->store, row->name);
	if (tls->server_name && !is_name(tls->server_name, HOST_CHARS ":"))
		return reading_fail(r, settings_line(group, "tls_server_name"),
				    "%stls_server_name is \"%.100s\"; expected a host's name or number", r->store,
				    tls->server_name);
	return 0;
}

/* In a URI or in a list of KEYWORD=VALUE. Everybody may read the configuration. */
static bool has_password(const char *info)
{
	const char *at, *scheme = strstr(info, "://"), *end = scheme ? strchr(scheme + 3, '@') : NULL;

	if (end && memchr(scheme + 3, ':', (size_t)(end - scheme - 3)))
		return true;
	for (at = info; (at = strstr(at, "password")); at++) {
		const char *behind = at + strlen("password");

		behind += strspn(behind, " ");
		if (*behind == '=' && (at == info || strchr(" ?&l", at[-1]))) /* l: sslpassword */
			return true;
	}
	return false;
}

/* ZooKeeper's client frees what is not its own if it is given such a path. */
static bool has_bad_path(const char *servers)
{
	for (const char *at = strchr(servers, '/'); at; at = strchr(at + 1, '/')) {
		size_t len = strcspn(at + 1, "/");

		if (len <= 2 && strspn(at + 1, ".") == len)
			return true;
	}
	return false;
}

/* What the server is and how it is reached is said in the string; nearly all else that the group knows is Redis'. */
static int read_engine(const struct config_reading *r, config_setting_t *group, const char *engine, const char *text)
{
	bool zookeeper = strcmp(engine, "zookeeper") == 0;

	for (const struct setting_row *row = config_store_rows; row->name; row++)
		if (strcmp(row->name, engine) != 0 && strcmp(row->name, "password_file") != 0 &&
		    strcmp(row->name, "connect_ms") != 0 && (!zookeeper || strcmp(row->name, "user") != 0) &&
		    config_setting_get_member(group, row->name))
			return reading_fail(r, settings_line(group, row->name),
					    "%s%s is there beside %s%s, and is not for it; expected all in %s",
					    r->store, row->name, r->store, engine,
					    zookeeper
						    ? "its string (h1:2181,h2:2181,h3:2181/dflock)"
						    : "its string (host=... dbname=... user=... sslmode=verify-full)");
	if (!zookeeper && has_password(text))
		return reading_fail(r, settings_line(group, engine),
				    "%spostgresql contains a password; expected it in the first line of a file that "
				    "password_file names",
				    r->store);
	if (zookeeper && has_bad_path(text))
		return reading_fail(r, settings_line(group, engine),
				    "%szookeeper names a path with an empty part, \".\" or \"..\"; expected "
				    "h1:2181,h2:2181,h3:2181/dflock",
				    r->store);
	return 0;
}

int server_read(const struct config_reading *r, config_setting_t *group, struct config_store *store)
{
	struct store_values values = {.store = *store, .replicas = -1, .shards = 1};
	int ret;

	values.store.connect_ms = 5000;
	ret = group ? settings_read(r, group, r->store, config_store_rows, &values) : 0;
	*store = values.store;
	store->database = (int)values.database;
	store->shards = (unsigned)values.shards;
	store->replicas = values.replicas < 0 ? 0 : (int)values.replicas;
	if (ret == 0 && config_engine(store))
		ret = read_engine(r, group, config_engine(store),
				  store->postgresql ? store->postgresql : store->zookeeper);
	else if (ret == 0 && values.cluster)
		ret = read_cluster(r, group, &values, store);
	else if (ret == 0 && values.sentinels)
		ret = read_sentinels(r, group, &values, store);
	else if (ret == 0)
		ret = read_server(r, group, values.server ? values.server : DEFAULT_SERVER, store);
	if (ret == 0)
		ret = server_check_tls(r, group, &store->tls);
	if (ret == 0)
		ret = read_password(r, group, "password_file", values.password_file, &store->password);
	if (ret == 0)
		ret = read_password(r, group, "sentinel_password_file", values.sentinel_password_file,
				    &store->sentinel_password);
	return ret;
}

static void free_secret(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

void server_free(struct config_store *store)
{
	free(store->address.host);
	for (size_t i = 0; i < store->sentinel_count; i++)
		free(store->sentinels[i].host);
	free_secret(store->sentinel_password);
	free_secret(store->password);
	if (store->parsed)
		config_destroy(store->parsed);
	free(store->parsed);
}
