/* Includes <urcu/urcu-bp.h>, and defines the names without a flavour. */
#define URCU_API_MAP
#include <urcu/urcu-bp.h>
