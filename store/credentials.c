/* See credentials.h. While a thread reads, only that thread uses `config`, `files`, `fresh`, `why` and `ret`; it compares with
 * `context`, which the loop replaces only when the thread has ended. */
#include "store/credentials.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct credentials {
	uv_loop_t *loop;
	struct config_tls config;
	uv_work_t work;
	bool reading, freed;
	credentials_cb *cb;
	void *arg;
	struct tls_context *context;
	/* the thread's */
	struct tls_context *fresh; /* NULL: the files are those of `context`, or cannot be used */
	int ret;
	char why[TLS_LINE_BYTES];
};

static void credentials_destroy(struct credentials *c)
{
	tls_context_free(c->context);
	free(c->config.ca);
	free(c->config.certificate);
	free(c->config.key);
	free(c);
}

static int credentials_copy(const char *text, char **out)
{
	*out = text ? strdup(text) : NULL;
	return text && !*out ? -ENOMEM : 0;
}

struct credentials *credentials_new(uv_loop_t *loop, const struct config_tls *config)
{
	struct credentials *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->loop = loop;
	if (credentials_copy(config->ca, &c->config.ca) == 0 &&
	    credentials_copy(config->certificate, &c->config.certificate) == 0 &&
	    credentials_copy(config->key, &c->config.key) == 0)
		return c;
	credentials_destroy(c);
	return NULL;
}

void credentials_free(struct credentials *c)
{
	if (!c)
		return;
	c->cb = NULL;
	c->freed = true;
	if (!c->reading)
		credentials_destroy(c);
}

static void credentials_work(uv_work_t *work)
{
	struct credentials *c = work->data;
	struct tls_files files;

	c->fresh = NULL;
	c->ret = tls_files_read(&c->config, &files, c->why);
	if (c->ret < 0)
		return;
	if (!c->context || !tls_context_is_of(c->context, files.digest)) {
		c->fresh = tls_context_new(&c->config, &files, c->why);
		c->ret = c->fresh ? 0 : -EINVAL;
	}
	tls_files_free(&files);
}

static void credentials_on_read(uv_work_t *work, int status)
{
	struct credentials *c = work->data;
	credentials_cb *cb = c->cb;

	(void)status; /* nothing cancels it */
	c->reading = false;
	c->cb = NULL;
	if (c->fresh) {
		tls_context_free(c->context);
		c->context = c->fresh;
	}
	if (c->freed)
		credentials_destroy(c);
	else if (cb)
		cb(c->arg, c->ret < 0 ? c->why : NULL);
}

int credentials_read(struct credentials *c, credentials_cb *cb, void *arg)
{
	if (cb) {
		c->cb = cb;
		c->arg = arg;
	}
	if (c->reading)
		return 0;
	c->work.data = c;
	if (uv_queue_work(c->loop, &c->work, credentials_work, credentials_on_read) != 0) {
		c->cb = NULL;
		return -ENOMEM;
	}
	c->reading = true;
	return 0;
}

void credentials_cancel(struct credentials *c)
{
	if (c)
		c->cb = NULL;
}

struct tls_context *credentials_context(const struct credentials *c)
{
	return c ? c->context : NULL;
}
