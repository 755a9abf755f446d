/* tests/agents/player.c as a static program, which no preload reaches. */
#include "tests/agents/player.c"
