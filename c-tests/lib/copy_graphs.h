/*
 * Executable graphs of copies. Include where there is MUST().
 */
#ifndef P2PSHIM_C_TESTS_COPY_GRAPHS_H
#define P2PSHIM_C_TESTS_COPY_GRAPHS_H

enum { IN_GRAPH = 6 };

/* Rows at the same distance on both sides; `at` is where they begin. */
struct copy {
    size_t at, pitch, width, rows, slices;
};

/* The copy is made in so many parts. */
struct graph {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t nodes[IN_GRAPH];
    int count;
    struct copy copy;
};

static void destroy_graph(struct graph *g)
{
    if (g->exec)
        MUST(cudaGraphExecDestroy(g->exec));
    if (g->graph)
        MUST(cudaGraphDestroy(g->graph));
    memset(g, 0, sizeof *g);
}

/* A part of a copy. */
static size_t part_of(const struct copy *c, int number, int count, size_t *bytes)
{
    size_t each = c->width / (size_t)count / sizeof(uint64_t) * sizeof(uint64_t), at = each * (size_t)number;
    *bytes = number == count - 1 ? c->width - at : each;
    return c->at + at;
}

/* Copies, one after the other or side by side. */
static void make_graph(struct graph *g, char *dst, const char *src, const struct copy *c, int count, bool is_chain)
{
    g->count = count;
    g->copy = *c;
    MUST(cudaGraphCreate(&g->graph, 0));
    for (int i = 0; i < count; i++) {
        size_t bytes, at = part_of(c, i, count, &bytes);
        size_t before = is_chain && i > 0;
        MUST(cudaGraphAddMemcpyNode1D(&g->nodes[i], g->graph, before ? &g->nodes[i - 1] : NULL, before, dst + at, src + at, bytes,
                                      cudaMemcpyDefault));
    }
    MUST(cudaGraphInstantiateWithFlags(&g->exec, g->graph, 0));
}

/* It copies something else of the same memory from now on. */
static void update_graph(struct graph *g, char *dst, const char *src, const struct copy *c)
{
    g->copy = *c;
    for (int i = 0; i < g->count; i++) {
        size_t bytes, at = part_of(c, i, g->count, &bytes);
        MUST(cudaGraphExecMemcpyNodeSetParams1D(g->exec, g->nodes[i], dst + at, src + at, bytes, cudaMemcpyDefault));
    }
}

#endif
