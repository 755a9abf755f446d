/* See wrappers.h. tests/cli/test_doctor_wrappers.py runs each that is installed, and looks whether LD_PRELOAD is
 * still set. */
#include "cli/wrappers.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define BEHIND   "put `dflock run` behind it, in front of the job"
#define IN_UNIT  "set LD_PRELOAD in the unit (Environment=), or put `dflock run` into ExecStart="
#define IN_THERE "install dflock there, and put `dflock run` behind it"

static const struct wrapper wrappers[] = {
	{"sudo", true, NULL, "it cleans the environment (env_reset)", BEHIND},
	{"sudoedit", true, NULL, "it cleans the environment (env_reset)", "edit the file under `dflock run`"},
	{"doas", true, NULL, "it cleans the environment", BEHIND},
	{"pkexec", true, NULL, "it cleans the environment", BEHIND},
	{"su", false, "- -l --login", "it cleans the environment with -, and for all users but root it is setuid",
	 BEHIND},
	{"runuser", false, "- -l --login", "it cleans the environment with -", BEHIND},
	{"login", true, NULL, "it cleans the environment", BEHIND},
	{"sg", true, NULL, "it is setuid", BEHIND},
	{"newgrp", true, NULL, "it is setuid", BEHIND},
	{"env", false, "- -i --ignore-environment", "it cleans the environment with -i", BEHIND},
	{"setpriv", false, "--reset-env", "it cleans the environment with --reset-env", BEHIND},
	{"bwrap", false, "--clearenv", "it cleans the environment with --clearenv, and the library must be inside",
	 BEHIND},
	{"chroot", false, NULL, "the library and the configuration must be inside", IN_THERE},
	{"doveadm", true, NULL, "it runs doveconf, which cleans the environment (import_environment)",
	 "add LD_PRELOAD to import_environment in dovecot.conf"},
	{"dovecot", true, NULL, "it runs doveconf, which cleans the environment (import_environment)",
	 "add LD_PRELOAD to import_environment in dovecot.conf"},
	{"doveconf", true, NULL, "it cleans the environment (import_environment)",
	 "add LD_PRELOAD to import_environment in dovecot.conf"},
	{"systemctl", true, NULL, "systemd starts the job, with an environment of its own", IN_UNIT},
	{"service", true, NULL, "it cleans the environment, or systemd starts the job", IN_UNIT},
	{"invoke-rc.d", true, NULL, "it cleans the environment, or systemd starts the job", IN_UNIT},
	{"systemd-run", true, NULL, "systemd starts the job, with an environment of its own", BEHIND},
	{"run0", true, NULL, "systemd starts the job, with an environment of its own", BEHIND},
	{"machinectl", true, NULL, "the job runs in another system", IN_THERE},
	{"at", true, NULL, "atd starts the job, with an environment from which LD_PRELOAD is missing",
	 "put `dflock run` into the job"},
	{"batch", true, NULL, "atd starts the job, with an environment from which LD_PRELOAD is missing",
	 "put `dflock run` into the job"},
	{"cron", true, NULL, "jobs have the environment of their table",
	 "set LD_PRELOAD in the table, or put `dflock run` into its lines"},
	{"crontab", true, NULL, "cron starts the jobs, with the environment of the table",
	 "set LD_PRELOAD in the table, or put `dflock run` into its lines"},
	{"ssh", true, NULL, "the job runs on another host", IN_THERE},
	{"rsh", true, NULL, "the job runs on another host", IN_THERE},
	{"snap", true, NULL, "the job runs confined, with libraries of its own",
	 "take the lock with flock(1) around it"},
	{"flatpak", true, NULL, "the job runs confined, with libraries of its own",
	 "take the lock with flock(1) around it"},
	{"docker", true, NULL, "a daemon starts the job in a container", IN_THERE},
	{"podman", true, NULL, "the job runs in a container, with its environment", IN_THERE},
	{"nerdctl", true, NULL, "a daemon starts the job in a container", IN_THERE},
	{"kubectl", true, NULL, "the job runs in a container, elsewhere", IN_THERE},
	{"lxc-attach", true, NULL, "the job runs in a container", IN_THERE},
	{"apptainer", true, NULL, "the job runs in a container, with libraries of its own", IN_THERE},
	{"singularity", true, NULL, "the job runs in a container, with libraries of its own", IN_THERE},
	{"firejail", true, NULL, "it is setuid", BEHIND},
	{"screen", false, NULL, "a session that runs already has the environment that it was started with", BEHIND},
	{"tmux", false, NULL, "a server that runs already has the environment that it was started with", BEHIND},
};

static const struct wrapper *find_wrapper(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	for (size_t i = 0; i < sizeof(wrappers) / sizeof(wrappers[0]); i++)
		if (strcmp(wrappers[i].name, name) == 0)
			return &wrappers[i];
	return NULL;
}

bool wrappers_cleans_with(const struct wrapper *w, const char *option)
{
	const size_t len = strlen(option);

	for (const char *p = w->with; p && len && (p = strstr(p, option)); p += len)
		if ((p == w->with || p[-1] == ' ') && (p[len] == ' ' || !p[len]))
			return true;
	return false;
}

bool wrappers_takes_locks(const struct wrapper *w)
{
	/* Debian's cron locks /run/crond.pid as long as it runs. */
	return strcmp(w->name, "cron") == 0;
}

const struct wrapper *wrappers_find(const char *path)
{
	const struct wrapper *found = find_wrapper(path);
	char resolved[PATH_MAX];

	/* /snap/bin/NAME and what /etc/alternatives chooses are links. */
	if (!found && strchr(path, '/') && realpath(path, resolved))
		found = find_wrapper(resolved);
	return found;
}
