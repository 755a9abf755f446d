/*
 * See credentials.h. A thread of its own reads, and not one of libuv's pool: the loop would wait for that at its end, and a
 * file system that does not answer may keep it for ever. What the thread uses is the reader; if the credentials are freed
 * while it reads, the reader is the thread's, which frees it.
 */
#include "store/redis/credentials.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct credentials_reader {
	struct config_tls config;
	struct tls_context *fresh; /* NULL: the files cannot be used */
	int ret;
	char why[TLS_LINE_BYTES];

	pthread_mutex_t lock; /* of what follows; all else is the thread's while it runs, else the loop's */
	bool runs;
	struct credentials *owner; /* NULL: it has gone */
};

struct credentials {
	uv_async_t async; /* the thread has come to an end */
	struct credentials_reader *reader;
	credentials_cb *cb;
	void *arg;
	struct tls_context *context;
};

/* ---- the thread ---- */

static void credentials_free_reader(struct credentials_reader *r)
{
	tls_context_free(r->fresh);
	pthread_mutex_destroy(&r->lock);
	free(r->config.ca);
	free(r->config.certificate);
	free(r->config.key);
	free(r);
}

static void *credentials_run(void *arg)
{
	struct credentials_reader *r = arg;
	bool owned;

	r->ret = tls_context_load(&r->config, &r->fresh, r->why);
	pthread_mutex_lock(&r->lock);
	r->runs = false;
	owned = r->owner != NULL;
	if (owned)
		uv_async_send(&r->owner->async);
	pthread_mutex_unlock(&r->lock);
	if (!owned)
		credentials_free_reader(r);
	return NULL;
}

/* No signal is for this thread. */
static int credentials_start(struct credentials_reader *r)
{
	sigset_t all, before;
	pthread_t thread;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = pthread_create(&thread, NULL, credentials_run, r);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (ret == 0)
		pthread_detach(thread);
	return -ret;
}

static bool credentials_is_running(struct credentials_reader *r)
{
	bool runs;

	pthread_mutex_lock(&r->lock);
	runs = r->runs;
	pthread_mutex_unlock(&r->lock);
	return runs;
}

/* ---- the loop ---- */

static void credentials_on_read(uv_async_t *async)
{
	struct credentials *c = async->data;
	struct credentials_reader *r = c->reader;
	credentials_cb *cb = c->cb;

	if (credentials_is_running(r)) /* the next one was started meanwhile */
		return;
	c->cb = NULL;
	if (r->fresh) {
		tls_context_free(c->context);
		c->context = r->fresh;
		r->fresh = NULL;
	}
	if (cb)
		cb(c->arg, r->ret < 0 ? r->why : NULL);
}

int credentials_read(struct credentials *c, credentials_cb *cb, void *arg)
{
	struct credentials_reader *r = c->reader;
	int ret;

	if (cb) {
		c->cb = cb;
		c->arg = arg;
	}
	/* `fresh`: it has come to an end, and the loop will hear of it. */
	if (credentials_is_running(r) || r->fresh)
		return 0;
	r->runs = true;
	ret = credentials_start(r);
	if (ret < 0) {
		r->runs = false;
		c->cb = NULL;
	}
	return ret;
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

static int credentials_copy(const char *text, char **out)
{
	*out = text ? strdup(text) : NULL;
	return text && !*out ? -ENOMEM : 0;
}

struct credentials *credentials_new(uv_loop_t *loop, const struct config_tls *config)
{
	struct credentials *c = calloc(1, sizeof(*c));
	struct credentials_reader *r = calloc(1, sizeof(*r));

	if (!c || !r) {
		free(c);
		free(r);
		return NULL;
	}
	pthread_mutex_init(&r->lock, NULL);
	r->owner = c;
	c->reader = r;
	if (credentials_copy(config->ca, &r->config.ca) < 0 ||
	    credentials_copy(config->certificate, &r->config.certificate) < 0 ||
	    credentials_copy(config->key, &r->config.key) < 0 ||
	    uv_async_init(loop, &c->async, credentials_on_read) != 0) {
		credentials_free_reader(r);
		free(c);
		return NULL;
	}
	c->async.data = c;
	uv_unref((uv_handle_t *)&c->async);
	return c;
}

static void credentials_on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

void credentials_free(struct credentials *c)
{
	struct credentials_reader *r;
	bool runs;

	if (!c)
		return;
	r = c->reader;
	pthread_mutex_lock(&r->lock);
	r->owner = NULL;
	runs = r->runs;
	pthread_mutex_unlock(&r->lock);
	if (!runs)
		credentials_free_reader(r);
	tls_context_free(c->context);
	uv_close((uv_handle_t *)&c->async, credentials_on_closed);
}
