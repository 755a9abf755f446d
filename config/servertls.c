/* The settings tls_... of the group `store`. */
#include <stdlib.h>
#include <string.h>

#include "config/internal.h"

#define NAME_BYTES 253
#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:"

static int servertls_keep(const struct config_reading *r, const char *value, char **out)
{
	*out = value ? strdup(value) : NULL;
	return value && !*out ? reading_out_of_memory(r) : 0;
}

static int servertls_keep_path(const struct config_reading *r, config_setting_t *group, const char *name,
			       const char *path, char **out)
{
	if (path && path[0] != '/')
		return reading_fail(r, settings_line(group, name), "store.%s is \"%.100s\"; expected an absolute path",
				    name, path);
	return servertls_keep(r, path, out);
}

/* What makes no sense without rediss:// was probably meant to be there. */
static int servertls_refuse_lonely(const struct config_reading *r, config_setting_t *group,
				   const struct servertls_values *values)
{
	const char *lonely = values->ca            ? "tls_ca"
			     : values->certificate ? "tls_certificate_file"
			     : values->key         ? "tls_key_file"
			     : values->server_name ? "tls_server_name"
						   : NULL;

	if (!lonely)
		return 0;
	return reading_fail(r, settings_line(group, lonely),
			    "store.%s is there, and no server or sentinel is reached by TLS; expected rediss:// before "
			    "the address",
			    lonely);
}

int servertls_read(const struct config_reading *r, config_setting_t *group, const struct servertls_values *values,
		   struct config_tls *tls)
{
	const char *name = values->server_name;
	int ret;

	if (!tls->on)
		return servertls_refuse_lonely(r, group, values);
	if (!values->certificate != !values->key)
		return reading_fail(r, settings_line(group, values->key ? "tls_key_file" : "tls_certificate_file"),
				    "store.%s is there without store.%s; expected both",
				    values->key ? "tls_key_file" : "tls_certificate_file",
				    values->key ? "tls_certificate_file" : "tls_key_file");
	if (name && (strlen(name) > NAME_BYTES || name[strspn(name, NAME_CHARS)]))
		return reading_fail(r, settings_line(group, "tls_server_name"),
				    "store.tls_server_name is \"%.100s\"; expected a host's name or number", name);
	ret = servertls_keep_path(r, group, "tls_ca", values->ca, &tls->ca);
	if (ret == 0)
		ret = servertls_keep_path(r, group, "tls_certificate_file", values->certificate, &tls->certificate);
	if (ret == 0)
		ret = servertls_keep_path(r, group, "tls_key_file", values->key, &tls->key);
	return ret == 0 ? servertls_keep(r, name, &tls->server_name) : ret;
}

void servertls_free(struct config_tls *tls)
{
	free(tls->ca);
	free(tls->certificate);
	free(tls->key);
	free(tls->server_name);
}
