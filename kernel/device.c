// SPDX-License-Identifier: GPL-2.0-only
/* The device: checks and serves requests. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/capability.h>
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/minmax.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "multicast.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#error "stillpoint_membarrier needs Linux 6.1 or newer"
#endif
#ifndef CONFIG_X86_64
#error "stillpoint_membarrier is for x86-64: the argument for leaving out CPUs holds only on x86-64 (receivers.c)"
#endif

static_assert(sizeof(struct still_mb_request) == 64);
static_assert(sizeof(struct still_mb_info) == 56);
static_assert(sizeof(struct still_mb_flush) == 80);

static bool is_valid(const struct still_mb_request *request)
{
	u32 flags = request->flags;

	if (request->strategy >= STILL_MB_STRATEGIES || (flags & ~STILL_MB_FLAGS) ||
	    request->reserved || request->percent > 99)
		return false;
	switch (request->strategy) {
	case STILL_MB_HYBRID:
		return true;
	case STILL_MB_SPLIT:
		return request->percent && !request->threshold;
	default:
		return !request->percent && !request->threshold;
	}
}

static bool is_range(const struct still_mb_flush *flush)
{
	return flush->length && IS_ALIGNED(flush->begin | flush->length, PAGE_SIZE) && flush->begin < TASK_SIZE_MAX &&
	       flush->length <= TASK_SIZE_MAX - flush->begin && !(flush->request.flags & STILL_MB_ALL);
}

static long serve_barrier(struct still_mb_request __user *user, unsigned int cmd)
{
	bool flushes = cmd == STILL_MB_IOC_FLUSH;
	struct still_mb_flush flush = { };
	struct still_mb_request request;
	u32 version;

	/* In every version of the interface, the first field is the version. The size of the rest may differ. */
	if (_IOC_SIZE(cmd) < sizeof(version))
		return -ENOTTY;
	if (get_user(version, &user->version))
		return -EFAULT;
	if (version != STILL_MB_VERSION)
		return put_user((u32)STILL_MB_VERSION, &user->version) ? -EFAULT : -EPROTONOSUPPORT;
	if (cmd != STILL_MB_IOC_BARRIER && !flushes)
		return -ENOTTY;
	if (copy_from_user(&flush, user, flushes ? sizeof(flush) : sizeof(request)))
		return -EFAULT;
	request = flush.request;
	if (!is_valid(&request) || (flushes && !is_range(&flush)))
		return -EINVAL;
	if (flushes && !still_mb_can_flush())
		return -EOPNOTSUPP;
	if ((request.flags & STILL_MB_ALL) && !capable(CAP_SYS_ADMIN))
		return -EPERM;
	request = (struct still_mb_request) {
		.version = STILL_MB_VERSION,
		.strategy = request.strategy,
		.flags = request.flags,
		.percent = request.percent,
		.threshold = request.threshold,
	};
	still_mb_barrier(&request, flush.begin, flush.begin + flush.length);
	return copy_to_user(user, &request, sizeof(request)) ? -EFAULT : 0;
}

static long serve_info(void __user *user, size_t size)
{
	struct still_mb_info info = {
		.version = STILL_MB_VERSION,
		.strategies = (1u << STILL_MB_STRATEGIES) - 1,
		.flags = STILL_MB_FLAGS,
		.skips_lazy = still_mb_can_skip_lazy(),
	};

	still_mb_totals(&info);
	/* A program of another version gets the fields that fit in its structure, at least the version. */
	if (size < sizeof(info.version))
		return -ENOTTY;
	return copy_to_user(user, &info, min(size, sizeof(info))) ? -EFAULT : 0;
}

static long still_mb_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	void __user *user = (void __user *)arg;

	if (_IOC_TYPE(cmd) != STILL_MB_IOC_MAGIC)
		return -ENOTTY;
	switch (_IOC_NR(cmd)) {
	case _IOC_NR(STILL_MB_IOC_INFO):
		return serve_info(user, _IOC_SIZE(cmd));
	case _IOC_NR(STILL_MB_IOC_BARRIER):
	case _IOC_NR(STILL_MB_IOC_FLUSH):
		return serve_barrier(user, cmd);
	default:
		return -ENOTTY;
	}
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = still_mb_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.llseek = noop_llseek,
};

/*
 * Only root may open the device, unless a udev rule permits others: a program that keeps interrupting all CPUs of a process slows down
 * the whole machine. The kernel's own system call got a mutex for this reason (CVE-2024-26602).
 */
static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = STILL_MB_NAME,
	.mode = 0600,
	.fops = &operations,
};

static int __init still_mb_init(void)
{
	int error;

	error = still_mb_order_init();
	if (error)
		return error;
	error = still_mb_contexts_init();
	if (error)
		goto no_contexts;
	error = misc_register(&device);
	if (error)
		goto no_device;
	pr_info("version %d, %u possible CPUs, %s lazy ones\n", STILL_MB_VERSION,
		num_possible_cpus(), still_mb_can_skip_lazy() ? "skips" : "interrupts");
	return 0;

no_device:
	still_mb_contexts_exit();
no_contexts:
	still_mb_order_exit();
	return error;
}

static void __exit still_mb_exit(void)
{
	misc_deregister(&device);
	/* A receiver acknowledges before it leaves our code. Interrupt each CPU, so that every receiver has left before the code is unmapped. */
	kick_all_cpus_sync();
	still_mb_contexts_exit();
	still_mb_order_exit();
}

module_init(still_mb_init);
module_exit(still_mb_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Process-wide memory barriers along a tree of inter-processor interrupts");
