/* For programs that use the drop-in and stillpoint.h: the flags of the drop-in name one folder. */
#include "../../stillpoint.h"
