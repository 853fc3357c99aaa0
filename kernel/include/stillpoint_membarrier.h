/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * The interface of the module stillpoint_membarrier, which executes a barrier on every CPU that runs the calling process, by interrupts
 * that are sent along a tree. It is one character device with three ioctls.
 */
#ifndef STILLPOINT_MEMBARRIER_H
#define STILLPOINT_MEMBARRIER_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define STILL_MB_NAME	"stillpoint_membarrier"
#define STILL_MB_DEVICE	"/dev/" STILL_MB_NAME

/* The version of the interface. It changes whenever programs that were built for the old version would not work correctly. */
#define STILL_MB_VERSION 1

/* How the message spreads. All strategies except SMP_CALL split ranges (plan.h). */
enum still_mb_strategy {
	STILL_MB_SMP_CALL = 0,	/* the kernel's smp_call_function_many(): the baseline */
	STILL_MB_FLAT = 1,	/* the initiator sends to each receiver */
	STILL_MB_TREE = 2,	/* each sender delegates half of its remaining receivers */
	STILL_MB_SPLIT = 3,	/* each sender delegates `percent` of its remaining receivers */
	STILL_MB_HYBRID = 4,	/* SMP_CALL up to `threshold` receivers; above, TREE, or SPLIT if `percent` is not 0 */
	STILL_MB_STRATEGIES
};

/* Interrupt every online CPU, not only those that run the caller's process. Needs CAP_SYS_ADMIN. */
#define STILL_MB_ALL		0x01u
/* Fill in `sends`, `depth` and `longest_path`. This costs time: the initiator reads every node afterwards. */
#define STILL_MB_COUNT		0x02u
/* Receivers decrement one shared counter, instead of combining their acknowledgements along the tree. */
#define STILL_MB_SHARED_COUNTER	0x04u
/* Use the same order of receivers for every initiator. Without this flag, an initiator's order begins behind its own CPU. */
#define STILL_MB_SAME_ORDER	0x08u
/* Include CPUs that idle, or run a kernel thread, on the page tables of the process. */
#define STILL_MB_INCLUDE_LAZY	0x10u
#define STILL_MB_FLAGS		0x1fu

struct still_mb_request {
	__u32 version;		/* in: STILL_MB_VERSION; out: the module's, also with EPROTONOSUPPORT */
	__u32 strategy;		/* in: enum still_mb_strategy */
	__u32 flags;		/* in: STILL_MB_ALL and so on */
	__u32 percent;		/* in: 1 to 99 for SPLIT, 0 to 99 for HYBRID, else 0 */
	__u32 threshold;	/* in: for HYBRID, else 0 */
	__u32 reserved;		/* in: 0 */
	__u32 receivers;	/* out: CPUs that were interrupted */
	__u32 root_sends;	/* out: messages that the initiator sent itself */
	__u32 sends;		/* out, COUNT: messages of all CPUs */
	__u32 depth;		/* out, COUNT: messages on the longest way from the initiator to a receiver */
	__u32 longest_path;	/* out, COUNT: the longest chain of sends, each of which waits for the one before */
	__u32 refused;		/* out: messages that were refused; their receivers were called one by one afterwards */
	__u64 send_ns;		/* out: time until the initiator's last send (0 for SMP_CALL) */
	__u64 total_ns;		/* out: time until every receiver had executed its barrier */
};

/* A barrier that also flushes. Afterwards, no thread of the process uses a translation of these pages from before the call. */
struct still_mb_flush {
	struct still_mb_request request;	/* without STILL_MB_ALL */
	__u64 begin, length;	/* in: bytes, both a multiple of the page size */
};

struct still_mb_info {
	__u32 version;		/* the module's STILL_MB_VERSION */
	__u32 strategies;	/* bit n: strategy n is available */
	__u32 flags;		/* the flags that the module knows */
	__u32 skips_lazy;	/* 1 if the module can detect lazy CPUs on this kernel; otherwise they are always receivers */
	__u64 operations;	/* barriers and flushes since the module was loaded */
	__u64 refused;		/* the sum of still_mb_request.refused */
	/* The following fields were added later. An older module leaves them as the program has set them. */
	__u64 interrupts;	/* the sum of still_mb_request.receivers */
	__u64 counted;		/* operations whose depth was counted: see COUNT, and the module's parameter count_all */
	__u64 depths;		/* the sum of still_mb_request.depth over these operations */
};

/*
 * The magic, the numbers 0 to 2, and the first field of each structure are the same in every version. The sizes in the codes may
 * differ.
 */
#define STILL_MB_IOC_MAGIC	0xd7
#define STILL_MB_IOC_INFO	_IOR(STILL_MB_IOC_MAGIC, 0, struct still_mb_info)
#define STILL_MB_IOC_BARRIER	_IOWR(STILL_MB_IOC_MAGIC, 1, struct still_mb_request)
#define STILL_MB_IOC_FLUSH	_IOWR(STILL_MB_IOC_MAGIC, 2, struct still_mb_flush)

#endif
