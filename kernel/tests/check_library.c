// SPDX-License-Identifier: GPL-2.0-only
/* The library of this project on the module: a program of its own, which chooses it as the back end of its fences. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define PROGRAM "/stillpoint"

/* Runs the program; its exit code, or -1, and what it printed, of which the end is kept. */
static int run(char *const arguments[], char *text, size_t size)
{
	char *const environment[] = { NULL };
	int ends[2], status = 0;
	size_t length = 0;
	ssize_t got;
	pid_t child;

	if (pipe(ends) != 0)
		return -1;
	child = fork();
	if (child == 0) {
		dup2(ends[1], 1);
		dup2(ends[1], 2);
		close(ends[0]);
		close(ends[1]);
		execve(PROGRAM, arguments, environment);
		_exit(127);
	}
	close(ends[1]);
	while ((got = read(ends[0], text + length, size - 1 - length)) > 0) {
		length += (size_t)got;
		if (length == size - 1) {
			memmove(text, text + size / 2, length - size / 2);
			length -= size / 2;
		}
	}
	close(ends[0]);
	text[length] = '\0';
	waitpid(child, &status, 0);
	return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* On one line, as a result is. */
static void flatten(char *text)
{
	for (; *text; text++)
		if (*text == '\n' || *text == '\r')
			*text = text[1] ? '/' : '\0';
}

void check_library(double seconds)
{
	char time[16], text[16384];
	char *const inside[] = { PROGRAM, "module-inside", time, NULL };
	char *const doctor[] = { PROGRAM, "doctor", NULL };
	struct still_mb_info before, after;
	int code;

	if (access(PROGRAM, X_OK) != 0) {
		skipped("library", "its static program was not built");
		return;
	}
	snprintf(time, sizeof(time), "%g", seconds);
	ioctl(device, STILL_MB_IOC_INFO, &before);
	code = run(inside, text, sizeof(text));
	ioctl(device, STILL_MB_IOC_INFO, &after);
	flatten(text);
	if (code != 0)
		failed("library", "exit code %d: %s", code, text);
	else if (after.operations == before.operations)
		failed("library", "it never came to the module");
	else
		passed("library", "%s; %llu barriers by the module", text, after.operations - before.operations);
	code = run(doctor, text, sizeof(text));
	if (code != 0 || !strstr(text, STILL_MB_NAME)) {
		flatten(text);
		failed("library: doctor", "exit code %d, or not a word of the module: %s", code, text);
	} else
		passed("library: doctor", "it tells of the module");
}
