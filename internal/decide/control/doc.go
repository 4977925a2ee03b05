// Package control keeps what operators say about single keys: bans, and other
// limits for a while. It is one table for all processes that share a store,
// and what each of them knows of it is put into its engine as a snapshot.
//
// A process looks at the table's version ten times a second, and reads what has
// changed. While the table is out of reach, what was known last stays in force.
package control
