#include "store/redis/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESS_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:%"

struct address_lookup {
	uv_getaddrinfo_t request;
	address_cb *cb; /* NULL: cancelled */
	void *arg;
};

bool address_of_number(const char *host, int port, struct sockaddr_storage *out)
{
	return uv_ip4_addr(host, port, (struct sockaddr_in *)out) == 0 ||
	       uv_ip6_addr(host, port, (struct sockaddr_in6 *)out) == 0;
}

bool address_is_host(const char *host)
{
	return *host && host[strspn(host, ADDRESS_CHARS)] == '\0';
}

void address_show(const char *host, int port, bool tls, char *out, size_t size)
{
	bool v6 = strchr(host, ':') != NULL;

	snprintf(out, size, "%s%s%s%s:%d", tls ? "rediss://" : "", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

static void address_on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
	struct address_lookup *lookup = (struct address_lookup *)request;

	if (lookup->cb)
		lookup->cb(lookup->arg, status == 0 ? list : NULL, status == 0 ? NULL : uv_strerror(status));
	free(lookup);
	uv_freeaddrinfo(list);
}

int address_look_up(uv_loop_t *loop, const char *host, int port, address_cb *cb, void *arg, struct address_lookup **out)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct address_lookup *lookup = calloc(1, sizeof(*lookup));
	char service[16];
	int ret;

	if (!lookup)
		return UV_ENOMEM;
	snprintf(service, sizeof(service), "%d", port);
	lookup->cb = cb;
	lookup->arg = arg;
	ret = uv_getaddrinfo(loop, &lookup->request, address_on_resolved, host, service, &hints);
	if (ret)
		free(lookup);
	*out = ret ? NULL : lookup;
	return ret;
}

void address_cancel(struct address_lookup *lookup)
{
	lookup->cb = NULL;
	uv_cancel((uv_req_t *)&lookup->request);
}
