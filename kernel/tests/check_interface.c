// SPDX-License-Identifier: GPL-2.0-only
/* Tests of the interface: versions, bad requests, rights. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define NOBODY 65534

void check_interface(void)
{
	struct still_mb_info info;
	struct still_mb_request request = { .version = STILL_MB_VERSION + 1, .strategy = 77 };
	/* A later version might send a longer structure under the same number. */
	struct { __u32 version; char rest[124]; } later = { .version = 9 };
	unsigned long later_barrier = _IOC(_IOC_READ | _IOC_WRITE, STILL_MB_IOC_MAGIC, 1, sizeof(later));
	unsigned long later_info = _IOC(_IOC_READ, STILL_MB_IOC_MAGIC, 0, sizeof(later));
	struct stat file;
	int error;

	if (ioctl(device, STILL_MB_IOC_INFO, &info) != 0 || info.version != STILL_MB_VERSION ||
	    info.strategies != (1u << STILL_MB_STRATEGIES) - 1 || info.flags != STILL_MB_FLAGS)
		failed("the module says what it is", "version %u, strategies %x, flags %x", info.version,
		       info.strategies, info.flags);
	else
		passed("the module says what it is", "version %u, lazy CPUs are %s", info.version,
		       info.skips_lazy ? "left out" : "interrupted");

	error = ioctl(device, STILL_MB_IOC_BARRIER, &request) == 0 ? 0 : errno;
	if (error != EPROTONOSUPPORT || request.version != STILL_MB_VERSION || request.strategy != 77)
		failed("another version is refused", "%s, version %u", strerror(error), request.version);
	else
		passed("another version is refused", "%s, and the module returns its own version", strerror(error));

	error = ioctl(device, later_barrier, &later) == 0 ? 0 : errno;
	if (error != EPROTONOSUPPORT || later.version != STILL_MB_VERSION)
		failed("a later version's request is refused as such", "%s", strerror(error));
	else
		passed("a later version's request is refused as such", "of %zu bytes", sizeof(later));
	memset(&later, 0, sizeof(later));
	if (ioctl(device, later_info, &later) != 0 || later.version != STILL_MB_VERSION)
		failed("a later version's program learns the version", "%s", strerror(errno));
	else
		passed("a later version's program learns the version", "%u", later.version);

	if (!alone())
		return;
	if (stat(STILL_MB_DEVICE, &file) != 0 || (file.st_mode & 0777) != 0600 || file.st_uid != 0)
		failed("the device is only for root unless a rule says otherwise", "mode %o", file.st_mode & 0777);
	else
		passed("the device is only for root unless a rule says otherwise", "mode 600");
}

static int refused(struct still_mb_request request, int expected, const char *what)
{
	int error = ioctl(device, STILL_MB_IOC_BARRIER, &request) == 0 ? 0 : errno;

	if (error == expected)
		return 0;
	failed("bad requests are refused", "%s: %s", what, strerror(error));
	return 1;
}

/* What a process without rights can do with the inherited descriptor. */
static int without_rights(void)
{
	const struct way tree = { "tree", STILL_MB_TREE, 0, 0, 0 };
	struct still_mb_request request;

	if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
		return 1;
	if (open(STILL_MB_DEVICE, O_RDWR) >= 0 || errno != EACCES)
		return 2;
	if (barrier(&tree, STILL_MB_ALL, &request) != EPERM)
		return 3;
	return barrier(&tree, 0, &request) == 0 ? 0 : 4;
}

void check_errors(void)
{
	const struct still_mb_request good = { .version = STILL_MB_VERSION, .strategy = STILL_MB_TREE };
	struct still_mb_request request;
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct still_mb_request *cut = (void *)(pages + 4096 - sizeof(*cut) / 2);
	int wrong = 0, status = 0;
	pid_t child;

#define BAD(field, value, what) \
	(request = good, request.field = (value), wrong += refused(request, EINVAL, what))
	BAD(strategy, STILL_MB_STRATEGIES, "a strategy that does not exist");
	BAD(strategy, ~0u, "a strategy with the greatest number");
	BAD(flags, STILL_MB_FLAGS + 1, "a flag that does not exist");
	BAD(reserved, 1, "a reserved field that is not 0");
	BAD(percent, 30, "a share for the tree");
	BAD(threshold, 3, "a threshold for the tree");
	BAD(percent, 100, "a share of everything");
	BAD(strategy, STILL_MB_SPLIT, "a split without its share");
#undef BAD
	request = good;
	request.strategy = STILL_MB_SPLIT;
	request.percent = 30;
	request.threshold = 4;
	wrong += refused(request, EINVAL, "a threshold for a split");
	request.strategy = STILL_MB_HYBRID;
	request.percent = 100;
	wrong += refused(request, EINVAL, "a hybrid with a share of everything");
	request.percent = 30;
	wrong += refused(request, 0, "a hybrid with a share, which is allowed");

	munmap(pages + 4096, 4096);
	memcpy(cut, &good, sizeof(*cut) / 2);
	if (ioctl(device, STILL_MB_IOC_BARRIER, cut) == 0 || errno != EFAULT)
		failed("bad requests are refused", "a request of which half is not mapped: %s", strerror(errno)), wrong++;
	if (ioctl(device, STILL_MB_IOC_BARRIER, NULL) == 0 || errno != EFAULT)
		failed("bad requests are refused", "a null pointer as the request: %s", strerror(errno)), wrong++;
	if (ioctl(device, STILL_MB_IOC_INFO, NULL) == 0 || errno != EFAULT)
		failed("bad requests are refused", "a null pointer for the information: %s", strerror(errno)), wrong++;
	if (ioctl(device, _IO(STILL_MB_IOC_MAGIC, 1), &request) == 0 || errno != ENOTTY)
		failed("bad requests are refused", "a request without room for a version: %s", strerror(errno)), wrong++;
	if (ioctl(device, _IO(STILL_MB_IOC_MAGIC, 7), &request) == 0 || errno != ENOTTY)
		failed("bad requests are refused", "an unknown request number: %s", strerror(errno)), wrong++;
	if (ioctl(device, TIOCGWINSZ, &request) == 0 || errno != ENOTTY)
		failed("bad requests are refused", "a request of another device: %s", strerror(errno)), wrong++;
	munmap(pages, 4096);
	if (!wrong)
		passed("bad requests are refused", "16 kinds");

	child = fork();
	if (child == 0)
		_exit(without_rights());
	waitpid(child, &status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		failed("without rights a process interrupts only itself", "status %x", status);
	else
		passed("without rights a process interrupts only itself", "EACCES, EPERM, and a barrier");
}
