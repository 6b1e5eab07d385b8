/* build: plain; run: by dlopen
 * Some loaders keep function pointers in variables that have the functions' names. See cases/variable_named_so.c.
 */
int cuMemcpyPeer = 42;
int cudaMemcpyPeer = 43;
