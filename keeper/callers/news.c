/* See news.h. */
#include "keeper/callers/news.h"

#include "keeper/callers/control_break.h"
#include "keeper/callers/control_init.h"
#include "keeper/callers/control_stop.h"
#include "keeper/callers/deadlock.h"
#include "keeper/callers/serve.h"
#include "keeper/callers/who.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/queue.h"

static void on_store(struct keeper *k, enum queue_store what)
{
	if (what == QUEUE_STORE_TRIED) {
		control_init_store_tried(k);
		who_store_tried(k);
	} else {
		control_stop_store_down(k);
	}
}

void news_start(struct keeper *k)
{
	static const struct queue_news news = {.told = serve_told,
					       .in_use = control_stop_in_use,
					       .store = on_store,
					       .leases_freed = control_stop_leases_ended,
					       .chase = deadlock_message,
					       .broken = control_break_here,
					       .broken_elsewhere = control_break_elsewhere,
					       .who = who_message};

	k->queue.news = &news;
}
