/*
 * From a host's name and a port to addresses. Numbers need no look-up; names are looked up by a thread, since that may
 * take long. Everything is called from the event loop.
 */
#ifndef DFLOCK_STORE_ADDRESS_H
#define DFLOCK_STORE_ADDRESS_H

#include <netdb.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <uv.h>

/* A number is an address already: true with *out filled. */
bool address_of_number(const char *host, int port, struct sockaddr_storage *out);

/* For people: "host:port", "[v6]:port". */
void address_show(const char *host, int port, char *out, size_t size);

struct address_lookup;
/* list: at least one address; NULL: why says what failed. Comes from the loop, once, unless it was cancelled. */
typedef void address_cb(void *arg, const struct addrinfo *list, const char *why);

/* NULL: it could not be started, cb will not be called, and why says what failed. */
struct address_lookup *address_look_up(uv_loop_t *loop, const char *host, int port, address_cb *cb, void *arg,
				       const char **why);
/* cb will not be called. Not after it was. */
void address_cancel(struct address_lookup *lookup);

#endif
