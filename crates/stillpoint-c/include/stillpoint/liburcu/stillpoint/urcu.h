/* For programs that use the drop-in and stillpoint/urcu.h: the flags of the drop-in name one folder. */
#include "../../urcu.h"
