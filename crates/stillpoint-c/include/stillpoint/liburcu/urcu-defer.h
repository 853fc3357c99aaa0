/* The name that <urcu/defer.h> had. */
#include <urcu/defer.h>
