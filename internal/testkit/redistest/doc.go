// Package redistest starts real Redis or Valkey servers on loopback for tests:
// one alone, a Sentinel set and a Cluster, which a test may kill, pause,
// restart, fail over and reshard, and a TCP [Proxy] that breaks the wire in
// between.
//
// The server is the one named by the environment variable HEADGATE_REDIS_BIN,
// else redis-server or valkey-server from PATH. Without one the test is
// skipped, or fails if HEADGATE_REQUIRE_REDIS=1, which make test sets. What runs
// on [Each] server runs on Valkey besides, if HEADGATE_VALKEY_BIN names one, one
// is in PATH, or scripts/ensure-valkey.sh has fetched one.
//
// Every process is killed when its test ends, also by a panic, and on Linux
// also when the test binary dies. Data lives in the test's temporary folder.
package redistest
