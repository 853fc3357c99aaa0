/* The drop-in for liburcu, flavour mb, with boosting of preempted readers. The other flavours are not configured. */
#define _GNU_SOURCE
#define _LGPL_SOURCE
#define URCU_API_MAP
#include <urcu/urcu-mb.h>

#include <stillpoint.h>
#include <stillpoint/urcu.h>

#define NAME(function) stillpoint_drop_in_boosted_##function
#include "urcu_flavour.h"

/* Call this before any other function of this file. Returns false if this process may not boost threads. */
bool stillpoint_drop_in_boosted_configure(void)
{
    struct still_domain_options options = STILL_DOMAIN_OPTIONS_INIT;

    options.boost = STILL_BOOST_REALTIME;
    options.boost_fallback = STILL_BOOST_REALTIME;
    return still_urcu_configure(STILL_URCU_MB, &options) == 0;
}
