/* LTTng's record of a copy: an event before the call and one after it, which together have the fields that a record
 * of the shim's trace has for what the program asked and what it was answered. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER p2pshim_bench

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "lttng_copies.h"

/* LTTng's macros read this file several times. */
#if !defined(LTTNG_COPIES_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define LTTNG_COPIES_H

#include <lttng/tracepoint.h>
#include <stddef.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(
	p2pshim_bench, begin,
	LTTNG_UST_TP_ARGS(uint8_t, function, uint64_t, src, uint64_t, dst, size_t, bytes, void *, stream),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint8_t, function, function)
		lttng_ust_field_integer_hex(uint64_t, src, src)
		lttng_ust_field_integer_hex(uint64_t, dst, dst)
		lttng_ust_field_integer(uint64_t, bytes, bytes)
		lttng_ust_field_integer_hex(uint64_t, stream, (uintptr_t)stream)
	)
)

LTTNG_UST_TRACEPOINT_EVENT(
	p2pshim_bench, end,
	LTTNG_UST_TP_ARGS(uint8_t, function, int, result),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint8_t, function, function)
		lttng_ust_field_integer(int, result, result)
	)
)

#endif

/* Must stand last, outside the guard. */
#include <lttng/tracepoint-event.h>
