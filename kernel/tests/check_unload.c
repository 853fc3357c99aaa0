// SPDX-License-Identifier: GPL-2.0-only
/* Tests of loading and unloading, and a check of the kernel's log. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

#define MODULE_FILE "/" STILL_MB_NAME ".ko"
#define READ_ALL 3	/* SYSLOG_ACTION_READ_ALL */
#define CYCLES 5

static int load(void)
{
	int fd = open(MODULE_FILE, O_RDONLY | O_CLOEXEC);
	int error = fd < 0 || syscall(SYS_finit_module, fd, "", 0) != 0 ? errno : 0;

	if (fd >= 0)
		close(fd);
	return error;
}

static int unload(void)
{
	return syscall(SYS_delete_module, STILL_MB_NAME, O_NONBLOCK) == 0 ? 0 : errno;
}

bool load_module(void)
{
	int error = load();

	if (error)
		failed("the module loads", "%s", strerror(error));
	else
		passed("the module loads", "%s", MODULE_FILE);
	return !error;
}

void check_unload(void)
{
	struct still_mb_request request;
	int error = unload(), cycle, way;

	if (error != EWOULDBLOCK)
		failed("unload", "while the device is open: %s", strerror(error));
	for (cycle = 0; cycle < CYCLES; cycle++) {
		close(device);
		error = unload();
		if (error || access(STILL_MB_DEVICE, F_OK) == 0)
			break;
		error = load();
		open_device();
		/* Use the module right before it is unloaded, while the last interrupts may not have returned yet. */
		for (way = 0; way < 20 && !error; way++)
			error = barrier(&ways[way % way_count], STILL_MB_ALL, &request);
		if (error || device < 0)
			break;
	}
	close(device);
	if (cycle == CYCLES)
		error = unload();
	if (error || cycle < CYCLES || access(STILL_MB_DEVICE, F_OK) == 0)
		failed("unload", "in cycle %d: %s", cycle, strerror(error));
	else
		passed("unload", "refused while the device is open; afterwards unloaded %d times", CYCLES + 1);
}

void check_log(void)
{
	static const char *const bad[] = {
		"WARNING:", "BUG:", "Oops", "lockup", "detected stall", "self-detected", "Call Trace", "UBSAN",
		"general protection", "csd: ",
	};
	const int size = 1 << 20;
	char *log = malloc((size_t)size);
	int length = klogctl(READ_ALL, log, size - 1), lines = 0, found = 0;
	bool own = false;
	char *line;
	unsigned int i;

	if (length < 0) {
		failed("the kernel's log", "%s", strerror(errno));
		free(log);
		return;
	}
	log[length] = '\0';
	for (line = strtok(log, "\n"); line; line = strtok(NULL, "\n"), lines++) {
		own = own || strstr(line, STILL_MB_NAME ": version 1,");
		for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
			if (strstr(line, bad[i])) {
				failed("the kernel's log", "%s", line);
				found++;
				break;
			}
	}
	if (!own)
		failed("the kernel's log", "%d lines, but not the module's own", lines);
	else if (!found)
		passed("the kernel's log", "%d lines, without warnings or errors", lines);
	free(log);
}
