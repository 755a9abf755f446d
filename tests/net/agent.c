/* tests/agents/agent.c as a static program, which no preload reaches. */
#include "tests/agents/agent.c"
