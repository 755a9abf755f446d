/*
 * dflock-net: `dflock run --net=on` executes it in place of the job. `dflock-net PRELOAD JOB [ARGUMENT...]` puts itself under the
 * net, sets LD_PRELOAD (unless PRELOAD is ""), and becomes the job. It leaves two processes behind, which end when the last
 * process of the job has ended.
 */
#include <stdio.h>
#include <string.h>

#include "net/launch.h"
#include "net/standby.h"
#include "shim/settings.h"

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], STANDBY_WORD) == 0)
		standby_wait(argv[0]);
	if (argc < 3) {
		fprintf(stderr, "dflock-net is started by `dflock run --net=on'\n");
		return LAUNCH_FAILED;
	}
	settings_init();
	return launch(argv[0], argv[1], &argv[2]);
}
