/* See hostid.h. */
#include "keeper/leases/hostid.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "keeper/clock.h"
#include "wire/leases.h"

#define DIGITS         16 /* of the machine and random together */
#define MACHINE_DIGITS 4

unsigned hostid_machine(void)
{
	char boot[CLOCK_BOOT_BYTES] = "";

	/* The kernel has no other number that all containers of a machine see. Without it, all count as one machine. */
	(void)!clock_boot(boot);
	return (unsigned)(leases_hash(boot) & 0xffff);
}

int hostid_make(const char *name, unsigned machine, char out[STORE_HOST_BYTES])
{
	uint64_t number;

	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return -EIO;
	snprintf(out, STORE_HOST_BYTES, "%.64s-%04x%012llx", name, machine, (unsigned long long)(number >> 16));
	for (char *p = out; *p; p++)
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			*p = '_';
	return 0;
}

/* The digits behind the last '-', or NULL. */
static const char *hostid_digits(const char *host)
{
	const char *dash = strrchr(host, '-');

	return dash && strlen(dash + 1) == DIGITS ? dash + 1 : NULL;
}

bool hostid_same_machine(const char *a, const char *b)
{
	const char *x = hostid_digits(a), *y = hostid_digits(b);

	return x && y && strncmp(x, y, MACHINE_DIGITS) == 0;
}
