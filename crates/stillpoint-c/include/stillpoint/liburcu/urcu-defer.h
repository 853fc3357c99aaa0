/* The old name of <urcu/defer.h>. */
#include <urcu/defer.h>
