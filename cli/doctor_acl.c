/* dflock doctor --acl: the rights that dflock needs in the store, as commands to give there. The form is that of Redis
 * 6.2, which newer versions take, too: nothing that only 7 has (selectors, %R~) would make the set smaller, because the
 * scripts read and write the same keys. */
#include "cli/doctor.h"

#include <stdio.h>
#include <string.h>

#include "cli/show.h"
#include "config/rights.h"

#define ACL_USER "dflock"

static void acl_print(const char *user, const char *beyond, const char *const *words, size_t count)
{
	/* A name that the parser let through may have blanks; redis-cli takes quotes. */
	bool quote = strpbrk(user, " \t\"'\\") != NULL;

	printf("ACL SETUSER %s", quote ? "\"" : "");
	for (const char *c = user; *c; c++) {
		char one[3] = {*c == '"' || *c == '\\' ? '\\' : *c, *c == '"' || *c == '\\' ? *c : '\0', '\0'};
		show_text(stdout, one);
	}
	printf("%s reset on >PASSWORD resetchannels%s -@all", quote ? "\"" : "", beyond);
	for (size_t i = 0; i < count; i++)
		printf(" +%s", words[i]);
	putchar('\n');
}

int doctor_acl(const struct config_store *store)
{
	const char *words[RIGHTS_MAX];

	puts("# On the server, and on each replica, which may become the master. Write the password for PASSWORD, and the same");
	puts("# one into the file that password_file names. Then ACL SAVE, or CONFIG REWRITE where there is no aclfile.");
	acl_print(store && store->user ? store->user : ACL_USER, " " RIGHTS_KEYS " " RIGHTS_CHANNELS, words,
		  rights_of_server(store, words));
	if (store && (store->sentinel_count == 0 || store->cluster))
		return CLI_OK;
	puts("# On each sentinel.");
	acl_print(store && store->sentinel_user ? store->sentinel_user : ACL_USER, "", words,
		  rights_of_sentinel(words));
	return CLI_OK;
}
