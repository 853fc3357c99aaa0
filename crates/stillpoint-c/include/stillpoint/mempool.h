/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * mempool.h: the driver "stillpoint" of DPDK's rte_mempool, and how its pools are configured.
 *
 * A mempool that is made with the driver's name has settings that fit. To choose others, pass a struct still_mempool_config to
 * rte_mempool_set_ops_byname, which keeps the pointer until the mempool is populated:
 *
 *     struct still_mempool_config config = STILL_MEMPOOL_CONFIG_INIT;
 *     config.bucket_bytes = 128 << 10;
 *     rte_mempool_set_ops_byname(pool, "stillpoint", &config);
 *
 * C11 or C++17, as stillpoint.h.
 */
#ifndef STILLPOINT_MEMPOOL_H
#define STILLPOINT_MEMPOOL_H

#include <stillpoint.h>

struct still_mempool_config {
    size_t size;         /* sizeof(struct still_mempool_config) */
    size_t bucket_bytes; /* of a contiguous block, a power of two, at least header, object and trailer; 0: 64 KiB, or more for large
                          * objects */
    size_t cache;        /* objects in the cache of each lcore, besides that of DPDK; 0: one in 32, at most 512, and none in a mempool
                          * of up to 512; STILL_ALL: none. Memory in several pieces divides it, and pieces of up to 512 objects have none */
};

#define STILL_MEMPOOL_CONFIG_INIT { sizeof(struct still_mempool_config), 0, 0 }

#endif
