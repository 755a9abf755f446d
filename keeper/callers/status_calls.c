/* See status_calls.h. */
#include "keeper/callers/status_calls.h"

#include "keeper/kernel/comm.h"
#include "keeper/leases/seeing.h"

static json_t *status_calls_one(const struct underway_call *call)
{
	char command[COMM_BYTES];
	json_t *name;

	comm_read(call->pid, command);
	name = json_string(command);
	return json_pack("{s:i,s:i,s:o,s:I,s:o}", "pid", (int)call->pid, "thread", (int)call->thread, "command",
			 name ? name : json_string("(not UTF-8)"), "from", (json_int_t)call->from, "to",
			 call->to == WIRE_EOF ? json_null() : json_integer(call->to));
}

json_t *status_calls_json(const struct lease *lease)
{
	json_t *list = json_array();
	struct underway_call call;

	for (size_t next = 0; seeing_next_keeping(lease, &next, &call);)
		json_array_append_new(list, status_calls_one(&call));
	return list;
}
