/*
 * FIRST_GLIBC: the version that symbols of the C library have here which it has had from its first on.
 */
#ifndef P2PSHIM_C_TESTS_GLIBC_H
#define P2PSHIM_C_TESTS_GLIBC_H

#ifdef __aarch64__
#define FIRST_GLIBC "GLIBC_2.17"
#else
#define FIRST_GLIBC "GLIBC_2.2.5"
#endif

#endif
