/* Starts a trace in a folder, marks it and stops it, linked with nothing of p2pshim: prints what each of the three returned. */
#include <p2pshim_annotate.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    if (count != 2)
        return 1;
    printf("%d ", p2pshim_annotate_start(arguments[1]));
    printf("%d ", p2pshim_annotate_mark("here"));
    printf("%d\n", p2pshim_annotate_stop());
    return 0;
}
