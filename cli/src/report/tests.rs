//! Tests of the parts together are added below.
