/* The old name of <urcu/flavor.h>. */
#include <urcu/flavor.h>
