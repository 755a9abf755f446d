#include "config/internal.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#define DEFAULT_SERVER "127.0.0.1:6379"
#define DEFAULT_PORT   6379
#define PASSWORD_BYTES 4096
#define HOST_CHARS     "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"
#define V6_CHARS       "0123456789abcdefABCDEF:.%"

struct store_values {
	const char *server, *user, *password_file;
	int64_t database, connect_ms;
};

const struct setting_row config_store_rows[] = {
	{"server", SETTING_STRING, offsetof(struct store_values, server), 0, 0},
	{"user", SETTING_STRING, offsetof(struct store_values, user), 0, 0},
	{"password_file", SETTING_STRING, offsetof(struct store_values, password_file), 0, 0},
	{"database", SETTING_NUMBER, offsetof(struct store_values, database), 0, 16383},
	{"connect_ms", SETTING_NUMBER, offsetof(struct store_values, connect_ms), 100, 600000},
	{NULL, 0, 0, 0, 0},
};

/* ":6379" or "" to a port; -1: neither. */
static int port_of(const char *s)
{
	long port;

	if (!*s)
		return DEFAULT_PORT;
	if (*s++ != ':' || !*s || strlen(s) > 5 || s[strspn(s, "0123456789")])
		return -1;
	port = strtol(s, NULL, 10);
	return port >= 1 && port <= 65535 ? (int)port : -1;
}

/* What is wrong with the text, or NULL with the store's fields set. */
static const char *parse_server(const char *server, struct config_store *store)
{
	bool v6 = server[0] == '[';
	const char *host = server + v6, *rest;
	size_t len;

	if (strncmp(server, "unix:", 5) == 0) {
		if (server[5] != '/')
			return "the socket's path is not absolute";
		if (strlen(server + 5) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
			return "the socket's path is longer than 107 bytes";
		store->socket = strdup(server + 5);
		return NULL;
	}
	if (strstr(server, "://"))
		return "it is not a URL";
	if (server[0] == '/')
		return "a socket's path needs unix: before it";
	len = strspn(host, v6 ? V6_CHARS : HOST_CHARS);
	rest = host + len;
	if (len == 0 || len > 253)
		return "there is no host name of 1 to 253 letters, digits, '-', '.' and '_'";
	if (v6 && *rest++ != ']')
		return "there is no ']' after the address";
	if (!v6 && *rest == ':' && strchr(rest + 1, ':'))
		return "an IPv6 address needs brackets";
	store->port = port_of(rest);
	if (store->port < 0)
		return "the port is not a number from 1 to 65535";
	store->host = strndup(host, len);
	return NULL;
}

static int keep(const struct reading *r, char **out, const char *s, size_t len)
{
	*out = strndup(s, len);
	return *out ? 0 : reading_out_of_memory(r);
}

/* The first line of the file, which others must not be able to read. */
static int read_password(const struct reading *r, int line, const char *file, char **password)
{
	const char *wrong = NULL;
	char *bytes = NULL;
	size_t len = 0;
	unsigned mode = 0;
	int rc;

	if (file[0] != '/')
		return reading_fail(r, line, "store.password_file is \"%.100s\"; expected an absolute path", file);
	rc = load_file(file, PASSWORD_BYTES, &bytes, &len, &mode);
	if (rc == -EFBIG)
		wrong = "is larger than 4096 bytes; expected the password in its first line";
	else if (rc == -EINVAL)
		wrong = "is not a regular file; expected one with the password in its first line";
	else if (rc < 0)
		return reading_fail(r, line, "store.password_file %.200s cannot be read: %s", file, strerror(-rc));
	else if (mode & (S_IROTH | S_IWOTH))
		wrong = "can be read or written by everybody; run chmod o-rw on it";
	else if (memchr(bytes, '\0', len))
		wrong = "contains a NUL byte; expected text";
	else if (strcspn(bytes, "\n") == 0)
		wrong = "has an empty first line; expected the password there";
	if (wrong)
		rc = reading_fail(r, line, "store.password_file %.200s %s", file, wrong);
	else
		rc = keep(r, password, bytes, strcspn(bytes, "\n"));
	if (bytes)
		explicit_bzero(bytes, len);
	free(bytes);
	return rc;
}

int server_read(const struct reading *r, config_setting_t *group, struct config_store *store)
{
	struct store_values values = {.server = DEFAULT_SERVER, .connect_ms = 5000};
	const char *wrong;
	int rc;

	if (group) {
		rc = settings_read(r, group, "store.", config_store_rows, &values);
		if (rc < 0)
			return rc;
	}
	store->database = (int)values.database;
	store->connect_ms = values.connect_ms;
	wrong = parse_server(values.server, store);
	if (wrong)
		return reading_fail(r, settings_line(group, "server"), "store.server is \"%.100s\": %s; expected %s",
				    values.server, wrong, "host:port, [IPv6 address]:port or unix:/path");
	if (!store->host && !store->socket)
		return reading_out_of_memory(r);
	if (values.user && !values.password_file)
		return reading_fail(r, settings_line(group, "user"),
				    "store.user is there without store.password_file; expected both");
	rc = values.user ? keep(r, &store->user, values.user, strlen(values.user)) : 0;
	if (rc < 0 || !values.password_file)
		return rc;
	return read_password(r, settings_line(group, "password_file"), values.password_file, &store->password);
}
