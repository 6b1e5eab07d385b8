/* build: plain; run: by LD_AUDIT
 * For the dynamic linker's LD_AUDIT: sees each object and each binding of a symbol, and leaves all as it is. At exit it says on standard
 * error how often cudaMemcpyPeer was bound, and to what.
 */
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int bound, to_shim;
/* By cookie, which is the object's number here. */
static uintptr_t objects, shim = UINTPTR_MAX;

unsigned la_version(unsigned version)
{
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    (void)space;
    *cookie = ++objects;
    if (strstr(map->l_name, "/libp2pshim.so"))
        shim = *cookie;
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags, const char *name)
{
    (void)index, (void)from, (void)flags;
    if (strcmp(name, "cudaMemcpyPeer") == 0) {
        bound++;
        to_shim += *to == shim;
    }
    return symbol->st_value;
}

__attribute__((destructor)) static void say(void)
{
    if (bound)
        fprintf(stderr, "audit: cudaMemcpyPeer was bound, %s\n", to_shim ? "to the shim" : "past the shim");
}
