#include "store/slots.h"

#include <string.h>

#include "store/address.h"

static bool slots_is_ours(const redisReply *row, enum slots_verdict *verdict)
{
	*verdict = SLOTS_NONSENSE;
	if (row->type != REDIS_REPLY_ARRAY || row->elements < 3 || row->element[0]->type != REDIS_REPLY_INTEGER ||
	    row->element[1]->type != REDIS_REPLY_INTEGER)
		return false;
	*verdict = SLOTS_NOBODY;
	return row->element[0]->integer <= STORE_SLOT && STORE_SLOT <= row->element[1]->integer;
}

static bool slots_read_node(const redisReply *node, const char *asked, char *host, size_t size, int *port)
{
	const char *name;

	if (node->type != REDIS_REPLY_ARRAY || node->elements < 2 || node->element[1]->type != REDIS_REPLY_INTEGER ||
	    node->element[1]->integer < 1 || node->element[1]->integer > 65535)
		return false;
	if (node->element[0]->type == REDIS_REPLY_NIL)
		name = asked;
	else if (node->element[0]->type != REDIS_REPLY_STRING ||
		 strlen(node->element[0]->str) != (size_t)node->element[0]->len)
		return false;
	else
		name = *node->element[0]->str ? node->element[0]->str : asked;
	if (!address_is_host(name) || strlen(name) >= size)
		return false;
	strcpy(host, name);
	*port = (int)node->element[1]->integer;
	return true;
}

enum slots_verdict slots_master(const redisReply *reply, const char *asked, char *host, size_t size, int *port)
{
	enum slots_verdict verdict = SLOTS_NOBODY;

	if (reply->type != REDIS_REPLY_ARRAY)
		return SLOTS_NONSENSE;
	for (size_t i = 0; i < reply->elements; i++) {
		if (slots_is_ours(reply->element[i], &verdict))
			return slots_read_node(reply->element[i]->element[2], asked, host, size, port) ? SLOTS_FOUND
												       : SLOTS_NONSENSE;
		if (verdict == SLOTS_NONSENSE)
			return verdict;
	}
	return SLOTS_NOBODY;
}
