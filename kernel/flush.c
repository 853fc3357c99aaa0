// SPDX-License-Identifier: GPL-2.0-only
/*
 * Flushes translations of the caller's pages. docs/design/kernel.md argues that this reaches every CPU that may hold them.
 *
 * The kernel's own flush_tlb_mm_range() is not exported. But each process has a public count of its flushes, tlb_gen: a CPU that
 * begins to run the process, or stops being lazy, flushes by itself if the count has grown. So counting is enough for CPUs that are
 * left out, and instructions of the CPU for the others.
 */
#include <linux/mm.h>
#include <linux/version.h>
#include <asm/tlbflush.h>

#include "multicast.h"

/*
 * The kernel, too, flushes more pages than this by dropping all translations of the address space (by default). Here, all others of
 * the CPU go with them: what drops only one address space is not exported.
 */
#define MOST_PAGES 33

/* Later kernels keep translations that no count outdates, where the processor broadcasts flushes. Only 6.1 was looked at. */
bool still_mb_can_flush(void)
{
	return LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0);
}

void still_mb_outdate(void)
{
	/* A full barrier: the caller's changes come before it, and the look at the receivers after it. */
	atomic64_inc_return(&current->mm->context.tlb_gen);
}

void still_mb_flush_here(const struct still_mb_context *context)
{
	unsigned long at = context->begin;

	/* INVLPG drops nothing of the second page tables that user space has with PTI, and Xen forbids it. */
	if ((context->end - at) >> PAGE_SHIFT > MOST_PAGES || boot_cpu_has(X86_FEATURE_PTI) ||
	    boot_cpu_has(X86_FEATURE_XENPV))
		__flush_tlb_all();
	else
		for (; at < context->end; at += PAGE_SIZE)
			asm volatile("invlpg (%0)" : : "r" (at) : "memory");
}
