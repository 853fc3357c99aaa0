// SPDX-License-Identifier: GPL-2.0-only
/*
 * Lets an unmodified program use the module. It replaces syscall(): membarrier's private expedited command becomes the module's barrier,
 * and all other calls are passed on. liburcu calls membarrier through syscall(3).
 *
 *	LD_PRELOAD=/path/libstillpoint_membarrier.so STILLPOINT_MEMBARRIER=hybrid:16 program
 *
 * STILLPOINT_MEMBARRIER is flat, tree, split:PERCENT, hybrid:THRESHOLD or smp-call; the default is tree. If the module is
 * not loaded, has another version, or does not answer, the kernel's own system call is used.
 *
 * The wrapper makes only system calls, because it may be called in a signal handler. Like the real syscall(), it always reads six
 * arguments.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../include/stillpoint_membarrier.h"

#define PRIVATE_EXPEDITED 8	/* MEMBARRIER_CMD_PRIVATE_EXPEDITED of linux/membarrier.h */

static int device = -1;
static struct still_mb_request order = { .version = STILL_MB_VERSION };

static long raw(long number, const long a[6])
{
	long result;
	register long r10 __asm__("r10") = a[3];
	register long r8 __asm__("r8") = a[4];
	register long r9 __asm__("r9") = a[5];

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

static int number_after(const char *text, const char *name, unsigned int least, unsigned int most,
			__u32 *number)
{
	size_t length = strlen(name);
	char *end;
	unsigned long value;

	if (strncmp(text, name, length) != 0 || text[length] < '0' || text[length] > '9')
		return 0;
	value = strtoul(text + length, &end, 10);
	*number = (__u32)value;
	return *end == '\0' && value >= least && value <= most;
}

static int choose(const char *text)
{
	if (!text || strcmp(text, "tree") == 0)
		order.strategy = STILL_MB_TREE;
	else if (strcmp(text, "flat") == 0)
		order.strategy = STILL_MB_FLAT;
	else if (strcmp(text, "smp-call") == 0)
		order.strategy = STILL_MB_SMP_CALL;
	else if (number_after(text, "split:", 1, 99, &order.percent))
		order.strategy = STILL_MB_SPLIT;
	else if (number_after(text, "hybrid:", 0, 1u << 20, &order.threshold))
		order.strategy = STILL_MB_HYBRID;
	else
		return 0;
	return 1;
}

__attribute__((constructor)) static void begin(void)
{
	const char *text = getenv("STILLPOINT_MEMBARRIER");
	struct still_mb_info info;
	int fd;

	if (!choose(text)) {
		fprintf(stderr,
			"libstillpoint_membarrier: STILLPOINT_MEMBARRIER is '%s', and must be flat, tree, split:1 to "
			"split:99, hybrid:THRESHOLD or smp-call; the module is not used\n", text);
		return;
	}
	fd = open(STILL_MB_DEVICE, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		fprintf(stderr, "libstillpoint_membarrier: %s: %s; the module is not used\n", STILL_MB_DEVICE,
			strerror(errno));
		return;
	}
	if (ioctl(fd, STILL_MB_IOC_INFO, &info) != 0 || info.version != STILL_MB_VERSION) {
		fprintf(stderr,
			"libstillpoint_membarrier: the module does not have version %d; it is not used\n",
			STILL_MB_VERSION);
		close(fd);
		return;
	}
	device = fd;
}

/* Returns true if the module has executed the barrier. If the program has closed the descriptor, the descriptor may be invalid, or belong
 * to another file. */
static int by_module(void)
{
	struct still_mb_request request = order;

	const long a[6] = { device, (long)STILL_MB_IOC_BARRIER, (long)&request };

	/* Another device may also return 0, but does not fill in the time of a barrier. */
	return device >= 0 && raw(SYS_ioctl, a) == 0 && request.total_ns != 0;
}

long syscall(long number, ...)
{
	va_list list;
	long a[6], result;
	int i;

	va_start(list, number);
	for (i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_membarrier && (int)a[0] == PRIVATE_EXPEDITED && (unsigned int)a[1] == 0 && by_module())
		return 0;
	result = raw(number, a);
	if (result < 0 && result > -4096) {
		errno = (int)-result;
		return -1;
	}
	return result;
}
