/* Our rte_rcu_qsbr.h in place of DPDK's. */
#include <rte_config.h>

#include <rte_common.h>
#include <rte_rcu_qsbr.h>

#define NAME(function) stillpoint_drop_in_rcu_qsbr_##function
#include "dpdk_qsbr.h"
