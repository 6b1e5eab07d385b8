/*
 * p2pshim: makes, shows and repairs GPU-to-GPU copies in programs nobody can rebuild.
 * Generated from src/capi.rs by `make header`; do not edit.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef P2PSHIM_H
#define P2PSHIM_H

#include <stddef.h>
#include <stdint.h>

/**
 * Major version of this header; p2pshim_version() tells that of the library.
 */
#define P2PSHIM_VERSION_MAJOR 0

/**
 * Minor version of this header.
 */
#define P2PSHIM_VERSION_MINOR 1

/**
 * Patch version of this header.
 */
#define P2PSHIM_VERSION_PATCH 0

/**
 * What a p2pshim_* function answers.
 */
typedef enum {
  /**
   * Done.
   */
  P2PSHIM_OK = 0,
  /**
   * A pointer is NULL, or a struct's size is smaller than any version of it.
   */
  P2PSHIM_INVALID_ARGUMENT = 1,
  /**
   * The index is not below the count.
   */
  P2PSHIM_OUT_OF_RANGE = 2,
} p2pshim_status_t;

/**
 * An intercepted function. The texts live as long as the library.
 */
typedef struct {
  /**
   * Set by the caller: sizeof(p2pshim_api_t).
   */
  size_t size;
  /**
   * The exported name, such as "cudaMemcpyPeer".
   */
  const char *name;
  /**
   * "runtime", "driver" or "hip".
   */
  const char *layer;
  /**
   * "traced", "state" (seen, not shown) or "lookup" (hands out functions).
   */
  const char *kind;
  /**
   * The names of its parameters, separated by ", ".
   */
  const char *parameters;
  /**
   * The version of CUDA, or of HIP, that introduced it: 1000 times the major plus 10 times the minor.
   */
  int since;
} p2pshim_api_t;

/**
 * An environment variable that the shim reads. The texts live as long as the library.
 */
typedef struct {
  /**
   * Set by the caller: sizeof(p2pshim_option_t).
   */
  size_t size;
  /**
   * The variable's name, such as "P2PSHIM_LOG".
   */
  const char *name;
  /**
   * The accepted values.
   */
  const char *values;
  /**
   * What holds when it is not set; empty if nothing.
   */
  const char *default_value;
  /**
   * What it does.
   */
  const char *help;
} p2pshim_option_t;

/**
 * A rule about peer calls: what programs get wrong, and what errors mean. The texts live as long as the library.
 */
typedef struct {
  /**
   * Set by the caller: sizeof(p2pshim_rule_t).
   */
  size_t size;
  /**
   * The stable id, such as "P2P-enable-twice".
   */
  const char *id;
  /**
   * "error" (the call fails, or would if the library looked), "hazard" (data may be wrong), "performance" or "note".
   */
  const char *severity;
  /**
   * The functions that it is about.
   */
  const char *functions;
  /**
   * What the documentation of CUDA says, and where.
   */
  const char *documentation;
  /**
   * What real hardware does where it is not that; empty if nothing is known.
   */
  const char *hardware;
  /**
   * Why it matters.
   */
  const char *why;
  /**
   * What to do.
   */
  const char *remedy;
  /**
   * The code that the documentation gives for the runtime's functions; 0 for none.
   */
  int runtime_code;
  /**
   * The same for the driver's.
   */
  int driver_code;
  /**
   * The names of these codes; empty for none.
   */
  const char *runtime_code_name;
  /**
   * The same for the driver's.
   */
  const char *driver_code_name;
  /**
   * How often the rule has spoken in this process so far.
   */
  uint64_t times;
} p2pshim_rule_t;

/**
 * The peer copies of this process from one device to another, as far as they succeeded. A copy counts when it is submitted.
 */
typedef struct {
  /**
   * Set by the caller: sizeof(p2pshim_pair_t).
   */
  size_t size;
  /**
   * Copies that went directly from device to device, or stayed in one.
   */
  uint64_t direct_copies;
  /**
   * Their bytes.
   */
  uint64_t direct_bytes;
  /**
   * Copies that went through the host.
   */
  uint64_t staged_copies;
  /**
   * Their bytes.
   */
  uint64_t staged_bytes;
} p2pshim_pair_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library, such as "0.1.0". The text lives as long as the library.
 */
const char *p2pshim_version(void);

/**
 * How many functions the shim intercepts.
 */
size_t p2pshim_api_count(void);

/**
 * Describes the intercepted function at an index below p2pshim_api_count().
 *
 * Returns P2PSHIM_INVALID_ARGUMENT if `api` is NULL or its size too small, P2PSHIM_OUT_OF_RANGE if there
 * is no such function; then nothing is written.
 *
 * # Safety
 * `api` is NULL or points to a struct of the size that its first field says.
 */
p2pshim_status_t p2pshim_api_get(size_t index,
                                 p2pshim_api_t *api);

/**
 * How many options the shim has.
 */
size_t p2pshim_option_count(void);

/**
 * Describes the option at an index below p2pshim_option_count().
 *
 * Returns P2PSHIM_INVALID_ARGUMENT if `option` is NULL or its size too small, P2PSHIM_OUT_OF_RANGE if
 * there is no such option; then nothing is written.
 *
 * # Safety
 * `option` is NULL or points to a struct of the size that its first field says.
 */
p2pshim_status_t p2pshim_option_get(size_t index,
                                    p2pshim_option_t *option);

/**
 * How many rules there are.
 */
size_t p2pshim_rule_count(void);

/**
 * Describes the rule at an index below p2pshim_rule_count(), and tells how often it has spoken.
 *
 * Returns P2PSHIM_INVALID_ARGUMENT if `rule` is NULL or its size too small, P2PSHIM_OUT_OF_RANGE if there is no such
 * rule; then nothing is written. May be called from any thread.
 *
 * # Safety
 * `rule` is NULL or points to a struct of the size that its first field says.
 */
p2pshim_status_t p2pshim_rule_get(size_t index,
                                  p2pshim_rule_t *rule);

/**
 * Tells what has been copied from a device to another, by ordinals.
 *
 * Returns P2PSHIM_INVALID_ARGUMENT if `pair` is NULL or its size too small, P2PSHIM_OUT_OF_RANGE for ordinals that are
 * negative or above 31, which are not counted; then nothing is written. May be called from any thread.
 *
 * # Safety
 * `pair` is NULL or points to a struct of the size that its first field says.
 */
p2pshim_status_t p2pshim_pair_get(int src_device,
                                  int dst_device,
                                  p2pshim_pair_t *pair);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* P2PSHIM_H */
