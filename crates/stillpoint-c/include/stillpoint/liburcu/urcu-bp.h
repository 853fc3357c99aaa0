/* As <urcu/urcu-bp.h>, with the names without a flavour. */
#define URCU_API_MAP
#include <urcu/urcu-bp.h>
