/* See supervise.h. */
#include "keeper/guard/supervise.h"

#include "keeper/clock.h"

#define PULSE_HUNG_NS (PULSE_HUNG_MS * NS_PER_MS)

void pulse_start(struct pulse *p, int64_t now_ns)
{
	*p = (struct pulse){.alive = -1, .looked_ns = now_ns, .since_ns = now_ns};
}

int pulse_period_ms(int64_t patience_ns)
{
	return patience_ns < PULSE_HUNG_NS ? PULSE_QUICK_MS : PULSE_CHECK_MS;
}

bool pulse_hangs(struct pulse *p, int64_t alive, int64_t now_ns, int64_t patience_ns, bool waits)
{
	int64_t passed = now_ns - p->looked_ns, most = 2 * pulse_period_ms(patience_ns) * NS_PER_MS;

	p->looked_ns = now_ns;
	if (alive != p->alive) {
		p->alive = alive;
		p->since_ns = now_ns;
		p->still_ns = 0;
		return false;
	}
	p->still_ns += passed < most ? passed : most;
	return p->still_ns >= patience_ns && (p->still_ns >= PULSE_HUNG_NS || !waits);
}
