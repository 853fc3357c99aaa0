// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests of the module. As the first process of a virtual machine, this program loads the module, runs all tests, and switches the machine
 * off. On another machine it must run as root, with the module loaded; it leaves out hotplug and unloading, which would disturb other
 * users. Without `disturb`, it also leaves out interrupts to CPUs that do not run this program, and refused messages, which would affect
 * all users.
 *
 *	check [SECONDS [ENTRIES [disturb]]]	seconds of each timed part; litmus entries of each strategy
 *
 * Each line of the result begins with "@module": begin, pass, fail, skip, rate, end.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

const struct way ways[] = {
	{ "smp-call", STILL_MB_SMP_CALL, 0, 0, 0 },
	{ "flat", STILL_MB_FLAT, 0, 0, 0 },
	{ "tree", STILL_MB_TREE, 0, 0, 0 },
	{ "tree, shared counter", STILL_MB_TREE, STILL_MB_SHARED_COUNTER, 0, 0 },
	{ "split 30", STILL_MB_SPLIT, 0, 30, 0 },
	{ "split 30, shared counter", STILL_MB_SPLIT, STILL_MB_SHARED_COUNTER, 30, 0 },
	{ "hybrid 4", STILL_MB_HYBRID, 0, 0, 4 },
};
const int way_count = sizeof(ways) / sizeof(ways[0]);

#define PARAMETERS "/sys/module/" STILL_MB_NAME "/parameters/"

int device = -1;
bool disturb;
static int passes, failures, skips, rates;

static void say(const char *what, const char *promise, const char *format, va_list list)
{
	printf("@module %s %s: ", what, promise);
	vprintf(format, list);
	printf("\n");
}

void passed(const char *promise, const char *format, ...)
{
	va_list list;

	passes++;
	va_start(list, format);
	say("pass", promise, format, list);
	va_end(list);
}

void failed(const char *promise, const char *format, ...)
{
	va_list list;

	failures++;
	va_start(list, format);
	say("fail", promise, format, list);
	va_end(list);
}

void skipped(const char *promise, const char *reason)
{
	skips++;
	printf("@module skip %s: %s\n", promise, reason);
}

void rate(const char *format, ...)
{
	va_list list;

	rates++;
	printf("@module rate ");
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	printf("\n");
}

void open_device(void)
{
	device = open(STILL_MB_DEVICE, O_RDWR | O_CLOEXEC);
}

int barrier(const struct way *way, __u32 more_flags, struct still_mb_request *request)
{
	*request = (struct still_mb_request) {
		.version = STILL_MB_VERSION,
		.strategy = way->strategy,
		.flags = way->flags | more_flags,
		.percent = way->percent,
		.threshold = way->threshold,
	};
	return ioctl(device, STILL_MB_IOC_BARRIER, request) == 0 ? 0 : errno;
}

bool alone(void)
{
	return getpid() == 1;
}

bool miscounted(__u64 counted, __u64 own)
{
	return alone() ? counted != own : counted < own;
}

void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0)
		failed("set-up", "cannot run on CPU %d: %s", cpu, strerror(errno));
}

int online_cpus(void)
{
	return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int error = fd < 0 || write(fd, text, strlen(text)) < 0 ? errno : 0;

	if (fd >= 0)
		close(fd);
	return error;
}

int set_online(int cpu, bool online)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", cpu);
	return write_file(path, online ? "1" : "0");
}

void set_parameter(const char *name, unsigned int value)
{
	char path[96], text[16];
	int error;

	snprintf(path, sizeof(path), PARAMETERS "%s", name);
	snprintf(text, sizeof(text), "%u", value);
	error = write_file(path, text);
	if (error)
		failed("set-up", "cannot write %s: %s", path, strerror(error));
}

/* Makes only system calls, because a signal handler calls it. */
static bool reset(const char *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, "0", 1) == 1;
}

static void give_up(int number)
{
	bool whole = reset(PARAMETERS "refuse_every");

	_exit(reset(PARAMETERS "count_all") && whole ? 128 + number : 127);
}

uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void first_process(void)
{
	static const char *const systems[][2] = {
		{ "proc", "/proc" }, { "sysfs", "/sys" }, { "devtmpfs", "/dev" },
	};
	unsigned int i;

	for (i = 0; i < sizeof(systems) / sizeof(systems[0]); i++)
		if (mount(systems[i][0], systems[i][1], systems[i][0], 0, NULL) != 0)
			failed("set-up", "cannot mount %s: %s", systems[i][1], strerror(errno));
	/* The kernel must not print between our lines. Its log is checked at the end. */
	write_file("/proc/sys/kernel/printk", "1");
}

int main(int count, char **arguments)
{
	bool first = alone();
	double seconds = count > 1 ? atof(arguments[1]) : 1.0;
	long entries = count > 2 ? atol(arguments[2]) : 20000;
	const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };
	struct utsname system;
	unsigned int i;

	disturb = first || (count > 3 && strcmp(arguments[3], "disturb") == 0);
	for (i = 0; disturb && i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], give_up);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (first)
		first_process();
	uname(&system);
	printf("\n@module begin %s, %d CPUs\n", system.release, online_cpus());
	if (first && !load_module())
		goto end;
	open_device();
	if (device < 0) {
		failed("set-up", "%s: %s (is the module loaded?)", STILL_MB_DEVICE, strerror(errno));
		goto end;
	}
	pin(0);
	check_interface();
	check_errors();
	if (disturb) {
		check_counters(first);
		check_refusals();
		check_reach();
		check_flush();
	} else
		skipped("counters, refused messages", "they disturb other users: pass disturb as the third argument");
	check_litmus(seconds, entries);
	check_concurrency(seconds);
	if (disturb)
		set_parameter("count_all", 1);
	check_liburcu(seconds);
	check_library(seconds);
	if (disturb)
		set_parameter("count_all", 0);
	if (first) {
		check_hotplug(seconds);
		check_unload();
		check_log();
	}
end:
	printf("@module end %d passed, %d failed, %d skipped, %d rates\n", passes, failures, skips, rates);
	if (first) {
		fflush(stdout);
		sync();
		reboot(RB_POWER_OFF);
	}
	return failures ? 1 : 0;
}
