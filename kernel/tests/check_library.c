// SPDX-License-Identifier: GPL-2.0-only
/* Tests the stillpoint library with the module, by a separate program that sets the module's barriers as its heavy fences. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "check.h"

#define PROGRAM "/stillpoint"

void check_library(double seconds)
{
	static char *const names[] = { "smp-call", "flat", "tree", "split", "hybrid" };
	char *const environment[] = { NULL };
	char time[16], text[16384], *line;
	char *const readers[] = { PROGRAM, "module-inside", NULL };
	char *const doctor[] = { PROGRAM, "doctor", NULL };
	struct still_mb_info before, after;
	unsigned int i;
	int code;

	if (access(PROGRAM, X_OK) != 0) {
		skipped("library", "its static program was not built");
		return;
	}
	snprintf(time, sizeof(time), "%g", seconds / 3);
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *const inside[] = { PROGRAM, "module-inside", time, names[i], NULL };

		ioctl(device, STILL_MB_IOC_INFO, &before);
		code = run(PROGRAM, inside, environment, text, sizeof(text));
		ioctl(device, STILL_MB_IOC_INFO, &after);
		flatten(text);
		if (code != 0)
			failed("library", "%s: exit code %d: %s", names[i], code, text);
		else if (after.operations == before.operations)
			failed("library", "%s: the program never used the module", names[i]);
		else
			passed("library", "%s: %s; %s", names[i], text, counted(&before, &after));
	}
	/* The output has a line for each way. */
	code = run(PROGRAM, readers, environment, text, sizeof(text));
	if (code != 0) {
		flatten(text);
		failed("readers", "exit code %d: %s", code, text);
	} else
		for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
			passed("readers", "%s", line);
	code = run(PROGRAM, doctor, environment, text, sizeof(text));
	if (code != 0 || !strstr(text, STILL_MB_NAME)) {
		flatten(text);
		failed("library: doctor", "exit code %d, or no mention of the module: %s", code, text);
	} else
		passed("library: doctor", "it reports the module");
}
