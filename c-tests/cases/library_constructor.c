/* build: libat_load.so -Wl,--allow-shlib-undefined -Wl,-rpath,$ORIGIN; run: library_constructor on sim
 * A library (lib/at_load.c) makes peer calls in its constructor, before main, and in its destructor, after it.
 */
#include <stdio.h>

void at_load_call(const char *where);

int main(void)
{
    at_load_call("main");
    return 0;
}
