/* The name that <urcu/flavor.h> had. */
#include <urcu/flavor.h>
