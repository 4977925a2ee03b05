// Package hugepage asks the system for huge pages under large tables. A table that a
// request reads at random places costs up to a third less time in them, because the
// processor can then keep the addresses of all its pages. See decision 0014.
package hugepage

// Size is the size of a huge page in bytes, and of the aligned pieces of memory that
// [Collapse] takes.
const Size = 2 << 20
