/* See hangup.h. */
#include "keeper/callers/hangup.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>

#include "keeper/callers/configfile.h"
#include "keeper/callers/configwatch.h"
#include "keeper/leases/keeper.h"
#include "keeper/log.h"

struct hangup {
	struct keeper *keeper;
	uv_signal_t signal;
	struct configwatch_wait look;
};

static struct hangup *hangup_of(struct configwatch_wait *wait)
{
	return (struct hangup *)((char *)wait - offsetof(struct hangup, look));
}

static void on_hangup_looked_at(struct configwatch_wait *wait, struct configfile_look *look)
{
	struct keeper *k = hangup_of(wait)->keeper;
	char why[WIRE_REASON_BYTES];

	if (!look)
		log_event(LINE_RELOAD_REFUSED, "SIGHUP: not reloaded: %s: its file system has not answered for %d s",
			  k->config->path, CONFIGWATCH_SLOW_MS / 1000);
	else if (look->read == 0 && !look->fresh)
		log_event(LINE_CONFIG_IN_FORCE_AGAIN, "SIGHUP: %s is in force already", k->config->path);
	else if (configfile_reload(k, look, false, why, sizeof(why)) < 0)
		log_event(LINE_RELOAD_REFUSED, "SIGHUP: not reloaded: %s", why);
}

static void on_hangup(uv_signal_t *signal, int number)
{
	struct hangup *h = signal->data;

	(void)number;
	/* A look that has begun may have read the file before it was changed: another one. */
	configwatch_leave(&h->look);
	configwatch_wait(h->keeper, &h->look, true, on_hangup_looked_at);
}

int hangup_start(struct keeper *k)
{
	struct hangup *h = calloc(1, sizeof(*h));
	sigset_t handled;

	if (!h)
		return -ENOMEM;
	k->hangup = h;
	h->keeper = k;
	uv_signal_init(k->loop, &h->signal);
	h->signal.data = h;
	uv_signal_start(&h->signal, on_hangup, SIGHUP);
	sigemptyset(&handled);
	sigaddset(&handled, SIGHUP);
	pthread_sigmask(SIG_UNBLOCK, &handled, NULL);
	return 0;
}

void hangup_close(struct keeper *k)
{
	if (!k->hangup)
		return;
	configwatch_leave(&k->hangup->look);
	uv_close((uv_handle_t *)&k->hangup->signal, NULL);
}

void hangup_free(struct keeper *k)
{
	free(k->hangup);
}
