/*
 * From a host's name and a port to addresses. Numbers need no lookup; names are looked up by a thread of libuv, since
 * that may take long. Everything is called from the event loop.
 */
#ifndef DFLOCK_STORE_ADDRESS_H
#define DFLOCK_STORE_ADDRESS_H

#include <netdb.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <uv.h>

/* A numeric host (IPv4 or IPv6) is an address already: true, with *out filled. False: it is a name. */
bool address_of_number(const char *host, int port, struct sockaddr_storage *out);

/* Is it a name or a number, as an address may have it: letters, digits, and "-._:%"? Other servers say what they like. */
bool address_is_host(const char *host);

/* For people: "host:port", "[v6]:port", with `tls` "rediss://host:port". Cut where it is too long. */
void address_show(const char *host, int port, bool tls, char *out, size_t size);

struct address_lookup;
/* `list`: at least one address, valid during the call; or NULL, and `why` says what failed. Comes from the loop, once,
 * unless the lookup was cancelled. */
typedef void address_cb(void *arg, const struct addrinfo *list, const char *why);

/* 0; or what libuv says: it could not be started, and cb will not be called. */
int address_look_up(uv_loop_t *loop, const char *host, int port, address_cb *cb, void *arg,
		    struct address_lookup **out);
/* cb will not be called. Must not be called once cb was. */
void address_cancel(struct address_lookup *lookup);

#endif
